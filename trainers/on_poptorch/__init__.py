"""PyTorch and PopTorch: a classifier on Graphcore IPUs, or on plain PyTorch without them."""
