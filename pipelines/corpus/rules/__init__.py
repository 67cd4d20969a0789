"""Rules that filter, edit or describe documents, by rule group."""
