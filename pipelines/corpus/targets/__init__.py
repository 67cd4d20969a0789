"""Reads evaluation texts for decontamination, and finds which of their n-grams count."""
