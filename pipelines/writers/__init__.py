"""What is written: shard files and what lies beside them, whole or not at all."""
