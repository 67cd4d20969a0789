"""Words and sentences of English text, as rules of quality count them."""
