"""Flags of the trainers; imports no framework. Python 3.8 syntax."""
