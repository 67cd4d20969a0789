"""TensorFlow: encoders, decoders, and one loop under a distribution strategy."""
