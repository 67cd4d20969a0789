"""Finds near-duplicates by MinHash, verifies them, and chooses the document to keep."""
