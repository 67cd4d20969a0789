"""Finds evaluation text in documents by n-grams of words."""
