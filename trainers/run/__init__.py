"""A run of a trainer: flags, contract, one loop, checkpoints, journal.

No framework is imported, so that --help and refusals cost none. Python 3.8 syntax.
"""
