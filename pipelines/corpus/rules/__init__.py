"""Rules that filter, edit or describe documents: one file for each rule group."""
