"""Scores and plots of models. Imports no framework."""
