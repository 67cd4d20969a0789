"""Evaluation texts for decontamination: how they are read, and which of their n-grams count."""
