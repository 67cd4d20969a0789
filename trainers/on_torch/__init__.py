"""Shard sets for training loops of PyTorch."""
