"""Continues a text or answers a message with a trained model."""

from __future__ import annotations

from textmill.schemas.commands.terminal import say
from textmill.schemas.errors import UsageError
from textmill.trainers.use.open_model import OpenModel
from textmill.trainers.use.verbs import CHAT, ChatFlags, missing_text


def print_texts(model: OpenModel) -> None:
    """Prints what `write_texts` returns; raises like it."""
    texts = write_texts(model)
    for number, text in enumerate(texts, 1):
        if len(texts) > 1:
            say(f"--- {number} of {len(texts)}")
        say(text)


def write_texts(model: OpenModel) -> list[str]:
    """The text of `generate` with each continuation, or the answers to the message of `chat`.

    Raises:
      UsageError: the model or the flags cannot continue the text.
      DataError: a file is broken.
    """
    use = model.use
    refuse_silent(model)
    is_message = isinstance(use, ChatFlags)
    text = use.message if is_message else use.text
    if text is None:
        raise missing_text(CHAT)
    return model.trainer.write_texts(
        model.trained, model.flags, use.generation, text, is_message=is_message
    )


def refuse_silent(model: OpenModel) -> None:
    """Refuses a model that writes no texts."""
    if model.trainer.continue_text is None:
        raise UsageError(
            f"{model.trained.directory}: models of trainers.{model.flags.entry} write no texts; "
            "give one of trainers.flax_clm"
        )
