"""The uses of a trained model, one verb a file, for commands and for Python."""
