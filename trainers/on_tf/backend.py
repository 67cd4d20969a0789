"""TensorFlow and Keras on it, imported in one place: what must be set before stands here.

Keras reads its backend from the environment or a file in the home directory when it is imported
first; whatever stands there, these trainers are TensorFlow's.
"""

import os

os.environ["KERAS_BACKEND"] = "tensorflow"
# TensorFlow tells at length what it found and did not find; errors stay.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras  # noqa: E402
import tensorflow as tf  # noqa: E402

__all__ = ["keras", "tf"]
