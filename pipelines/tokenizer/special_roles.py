"""Special tokens and their roles: in tokenizer.json, and in tokenizer_config.json."""

import json
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from textmill.pipelines.encoding.reference import AddedToken, Tokenizer
from textmill.pipelines.tasks.chat_template import read_chat_template
from textmill.pipelines.tokenizer.options import TokenizerOptions


def add_special_tokens(
    tokenizer: Tokenizer, options: TokenizerOptions, takes_space: str = ""
) -> None:
    """Makes tokens of the vocabulary special; `takes_space` includes the space before it."""
    tokenizer.add_special_tokens(
        [
            AddedToken(token, lstrip=token == takes_space, normalized=False, special=True)
            for token in options.specials
        ]
    )


def tokenizer_settings(options: TokenizerOptions, model: ModuleType) -> dict[str, Any]:
    """The settings of tokenizer_config.json: roles of special tokens, the chat template, others.

    Args:
      options: the command's.
      model: of the tokenizer type, see `load_model`.
    """
    roles = {role: token for role, token in model.ROLES.items() if token in options.specials}
    settings = roles | model.tokenizer_config(options)
    if options.chat_template:
        settings["chat_template"] = read_chat_template(options.chat_template)
    return settings


def config_json(settings: Mapping[str, Any]) -> bytes:
    """tokenizer_config.json, with which `AutoTokenizer` knows the roles of special tokens."""
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        **settings,
    }
    return (json.dumps(config, indent=2, sort_keys=True) + "\n").encode()
