"""The uses of a trained model, one verb a file, for use_model and for Python."""
