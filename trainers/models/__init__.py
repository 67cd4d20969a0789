"""Models: dimensions, names and shapes of weights, files of Hugging Face.

No framework, so that --help and refusals cost no import of one; Python 3.8 syntax.
"""
