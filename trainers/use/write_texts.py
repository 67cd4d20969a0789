"""Continues a text or answers a message with a trained model."""

from __future__ import annotations

from textmill.trainers.use.open_model import OpenModel


def writes(model: OpenModel) -> bool:
    """Whether the flags request a text."""
    return model.generation.generate is not None or model.generation.chat is not None


def write_texts(model: OpenModel) -> list[str]:
    """The text of --generate with each continuation, or the answers to --chat.

    Raises:
      UsageError: the model or the flags cannot continue the text.
      DataError: a file is broken.
    """
    return model.trainer.write_texts(model.trained, model.flags, model.generation)
