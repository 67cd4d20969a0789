"""Words, lines and sentences of English text, for quality rules."""
