"""Splitting patterns: regular expressions that cut text into words, compiled and run here."""
