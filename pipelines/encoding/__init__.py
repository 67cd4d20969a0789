"""Text -> token ids of documents, pairs of texts, questions."""
