"""Limits for files from untrusted sources: bounds on their content, and a limited process."""
