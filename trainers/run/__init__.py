"""A run of a trainer: flags, contract, one loop, checkpoints, journal. Knows no framework."""
