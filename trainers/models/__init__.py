"""Models without a framework: dimensions, names and shapes of weights, files of Hugging Face."""
