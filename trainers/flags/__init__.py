"""Flags of the trainers: groups, checks, command lines. No framework; Python 3.8 syntax."""
