"""Kinds of tokenizers that can be trained, a file each."""
