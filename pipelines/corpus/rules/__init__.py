"""Rules by which documents are dropped, edited or described: a file a family, behind one table."""
