"""tokenizer_config.json for a dataset's or a model's tokenizer.json, as transformers reads it.

tokenizer.json itself does not say which token is bos or eos. Python 3.8 syntax.
"""

from typing import Any, Dict, Iterator, Mapping

TOKENIZER_CONFIG = "tokenizer_config.json"


def tokenizer_settings(
    token_ids: Mapping[str, int], special_ids: Mapping[str, int], **others: Any
) -> Dict[str, Any]:
    """The content of tokenizer_config.json: which token has which role, and `others`.

    {"bos": 0, "mask": 4, ...} of a schema -> {"bos_token": "<s>", "mask_token": "<mask>", ...}.
    `token_ids` are all tokens of tokenizer.json and their ids.
    """
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **others,
        **_roles(token_ids, special_ids),
    }


def odd_settings(
    settings: Mapping[str, Any], token_ids: Mapping[str, int], special_ids: Mapping[str, int]
) -> Iterator[str]:
    """Roles of tokenizer_config.json that are not those of schema.json: "eos_token"."""
    due = _roles(token_ids, special_ids)
    given = {name for name in settings if name.endswith("_token") and name[:4] != "add_"}
    return (name for name in sorted(due.keys() | given) if settings.get(name) != due.get(name))


def _roles(token_ids: Mapping[str, int], special_ids: Mapping[str, int]) -> Dict[str, str]:
    tokens = {number: token for token, number in token_ids.items()}
    roles = {f"{role}_token": tokens[number] for role, number in special_ids.items()}
    if "mask" in special_ids:  # an encoder's first and last token go by these names too
        named = {"cls_token": roles.get("bos_token"), "sep_token": roles.get("eos_token")}
        roles.update({name: token for name, token in named.items() if token is not None})
    return roles
