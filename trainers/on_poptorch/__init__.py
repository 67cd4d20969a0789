"""PyTorch and PopTorch: a classifier on Graphcore IPUs, or in plain PyTorch."""
