"""What the files of all tokenizers have in common. Pure."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tokenizers import AddedToken, Tokenizer


def add_special_tokens(tokenizer: Tokenizer, tokens: Sequence[str], takes_space: str = "") -> None:
    """Makes tokens of the vocabulary special; `takes_space` takes the space before it along."""
    tokenizer.add_special_tokens(
        [
            AddedToken(token, lstrip=token == takes_space, normalized=False, special=True)
            for token in tokens
        ]
    )


def config_json(settings: Mapping[str, Any], chat_template: str | None) -> bytes:
    """tokenizer_config.json: the roles of the special tokens and more, for `AutoTokenizer`."""
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        **settings,
        **({"chat_template": chat_template} if chat_template is not None else {}),
    }
    return (json.dumps(config, indent=2, sort_keys=True) + "\n").encode()
