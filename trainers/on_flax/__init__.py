"""The trainers on JAX: Flax NNX models, optax steps."""
