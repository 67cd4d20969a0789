"""Rows and counts of a set, for people and other tools."""
