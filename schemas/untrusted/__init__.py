"""Limits for files from untrusted sources: their bounds, and a process that may be ended."""
