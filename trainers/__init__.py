"""Shards in, training steps out: one minimal trainer per task and framework.

Never imports pipelines or Beam. `trainers.reader` works alone: it needs numpy and `schemas`.
"""

from schemas.commands.entry import name_missing_packages

name_missing_packages()
