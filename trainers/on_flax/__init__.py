"""JAX: models in Flax NNX, optimizers of optax."""
