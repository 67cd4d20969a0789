"""Whole documents in the files of other projects, a format a file."""
