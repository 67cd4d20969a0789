"""Models: dimensions, weights, files of Hugging Face. No framework; Python 3.8 syntax."""
