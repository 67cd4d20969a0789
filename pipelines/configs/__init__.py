"""Recipes: ready-made flag files (*.yaml) for --config."""
