"""Trainers that stream datasets: one for each task and framework.

Nothing here imports pipelines or Beam. `trainers.reader` needs numpy and `schemas` only.
"""

from schemas.commands.entry import name_missing_packages

name_missing_packages()
