"""Splitting patterns, a file each: how text is cut into words."""
