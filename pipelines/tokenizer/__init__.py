"""Trains tokenizers: text to word counts to merges to tokenizer.json."""
