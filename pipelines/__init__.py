"""Text in, shards out: Apache Beam jobs. The only package that imports Beam."""
