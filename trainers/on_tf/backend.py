"""Imports TensorFlow and Keras, after setting the environment variables that they read.

Keras reads its backend from the environment or a file in the home directory on its first import;
these trainers always use TensorFlow.
"""

import os

os.environ["KERAS_BACKEND"] = "tensorflow"
# Hides TensorFlow's notes on devices and libraries, but not its errors.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras  # noqa: E402
import tensorflow as tf  # noqa: E402

__all__ = ["keras", "tf"]
