"""TensorFlow: encoders, decoders, and a program for all distribution strategies."""
