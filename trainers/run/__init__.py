"""A run of a trainer: one loop, checkpoints, journal. No framework; Python 3.8 syntax."""
