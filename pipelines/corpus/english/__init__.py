"""Cuts English text into words and sentences, and measures both."""
