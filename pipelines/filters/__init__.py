"""Which documents are kept, and in what normal form."""
