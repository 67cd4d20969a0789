"""Text in, shards out: Apache Beam jobs. The only package that imports Beam."""

from textmill.entries import share_modules

share_modules(__name__)
