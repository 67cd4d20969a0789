"""Trainers that stream datasets: one for each task and framework.

Trainers never import pipelines or Beam. `trainers.reader` needs numpy and `schemas` only.
"""

from schemas.commands.entry import name_missing_packages

name_missing_packages()
