"""Text in, shards out: Apache Beam jobs. The only package that imports Beam."""

from schemas.commands.entry import name_missing_packages

name_missing_packages()
