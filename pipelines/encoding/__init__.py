"""Text to token ids, by `tokenizers` or by a faster backend that gives the same ids."""
