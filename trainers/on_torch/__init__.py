"""Datasets for training loops in PyTorch."""
