"""Trainers that stream datasets: one for each task and framework.

Trainers never import pipelines or Beam. `trainers.reader` needs only numpy and `schemas`.
"""

from textmill.entries import share_modules

share_modules(__name__)
