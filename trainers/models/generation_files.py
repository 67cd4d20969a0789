"""How a decoder's texts begin and end, in the files that `transformers` generates with.

    tokenizer.json            puts the ids before a prompt that `generate` puts there
    generation_config.json    {"eos_token_id": [2, 6], ...}: each of these ids ends a text

Python 3.8 syntax.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Iterator, Mapping, Sequence

from textmill.schemas.errors import DataError
from textmill.schemas.format.metadata import Schema
from textmill.schemas.tokenizers.tokenizer_json import read_tokenizer_json, token_ids
from textmill.schemas.typed_json import load_json, quote
from textmill.trainers.models.chat_format import format_of_schema
from textmill.trainers.models.families import FAMILIES
from textmill.trainers.models.set_tokenizer import open_tokenizer

GENERATION = "generation_config.json"

# The settings of a decoder's tokenizer: GPT-2 would add token types to its embeddings.
INPUTS = {"model_input_names": ["input_ids", "attention_mask"]}
_QWEN2_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_ADD_TOKENS = ("TemplateProcessing", "BertProcessing", "RobertaProcessing")


def text_start(schema: Schema) -> tuple[int, ...]:
    """The ids before each text of a decoder's rows: bos, or none."""
    parameters = schema.parameters
    if schema.task == "qa":
        return (schema.special_ids["bos"],) if parameters["bos"] else ()
    return tuple(parameters.get("prefix_ids", ()))


def text_ends(
    schema: Schema, tokenizer_json: bytes, *, vocab_size: int, first_weights: Path | None = None
) -> tuple[int, ...]:
    """The ids that each end a text of a run: eos, the end of a turn, and those of --init_from."""
    ends = [schema.special_ids["eos"]] if "eos" in schema.special_ids else []
    if "chat_template" in schema.parameters:
        chat = format_of_schema(schema, tokenizer_json)
        ends += chat.end_ids(open_tokenizer(tokenizer_json), schema.all_special_ids)
    if first_weights is not None:
        content = load_json(str(first_weights / "config.json"))
        ends += _named_ends(first_weights, content) or ()
    return tuple(number for number in dict.fromkeys(ends) if number < vocab_size)


def run_ends(output: Path, schema: Schema, tokenizer_json: bytes) -> tuple[int, ...]:
    """The ids that a run's generation_config.json names; older runs have none, see `text_ends`."""
    ends = _named_ends(output, {})
    if ends is not None or (output / GENERATION).is_file():
        return ends or ()
    return text_ends(schema, tokenizer_json, vocab_size=schema.vocab_size)


def published_ids(
    content: Mapping[str, Any], directory: Path
) -> tuple[tuple[int, ...] | None, tuple[int, ...]]:
    """The ids that begin the texts of a published decoder, and those that end them.

    `content` is its config.json. The first is None if this has none, so that the tokenizer decides.
    Ends are those of generation_config.json, else of config.json, else the family's.
    """
    row = FAMILIES[content["model_type"]]
    if row.eos_ids is None:  # an encoder
        return (), ()
    start = content.get("prefix_ids", ())
    ends = _named_ends(directory, content)
    if ends is None:
        ends = () if "eos_token_id" in content else row.eos_ids
    where = f"{directory}: config.json"
    return _numbers(start, where) if "prefix_ids" in content else None, ends


def _named_ends(directory: Path, config: Mapping[str, Any]) -> tuple[int, ...] | None:
    """The ends that generation_config.json names, else config.json, as `transformers` reads them.

    Raises:
      DataError: a file cannot be read, or names no ids.
    """
    path = directory / GENERATION
    settings = load_json(str(path)) if path.is_file() else {}
    if not isinstance(settings, dict):
        raise DataError(f"{path} holds a {type(settings).__name__}, not an object; copy it again")
    for name, content in ((GENERATION, settings), ("config.json", config)):
        value = content.get("eos_token_id")
        if value is not None:
            return _numbers(value, f"{directory}: {name}")
    return None


def _numbers(value: Any, where: str) -> tuple[int, ...]:
    """One id or a list of them: 2 -> (2,)."""
    numbers = [] if value is None else value if isinstance(value, list) else [value]
    if not all(type(number) is int for number in numbers):
        raise DataError(f"{where} has {quote(value)} for the id of a token: copy it again")
    return tuple(numbers)


def generation_settings(schema: Schema, ends: Sequence[int]) -> dict[str, Any]:
    """The content of generation_config.json; config.json has the same.

    {"bos_token_id": 0, "eos_token_id": [2, 6], "pad_token_id": 1}
    """
    settings: dict[str, Any] = {
        f"{role}_token_id": schema.special_ids[role]
        for role in ("bos", "pad")
        if role in schema.special_ids
    }
    if ends:
        settings["eos_token_id"] = ends[0] if len(ends) == 1 else list(ends)
    return settings


def for_prompts(tokenizer_json: bytes, start: Sequence[int]) -> bytes:
    """A tokenizer.json that puts the ids `start` before a text, and nothing after it.

    Rows of a decoder do not have what its tokenizer adds, such as RoBERTa's `<s> text </s>`. Other
    steps of the post-processor stay.
    """
    config = read_tokenizer_json(tokenizer_json, "tokenizer.json")
    before = config.get("post_processor")
    steps = [step for step in map(_without_tokens, _steps(before)) if step]
    if start:
        steps.append(_template(config, start))
    after = {"type": "Sequence", "processors": steps} if len(steps) > 1 else next(iter(steps), None)
    if after == before:
        return tokenizer_json
    content = json.dumps({**config, "post_processor": after}, ensure_ascii=False, indent=2)
    return content.encode()


def tokenizer_notes(family: str, tokenizer_json: bytes) -> list[str]:
    """A note if AutoTokenizer opens the tokenizer of an export as a different one.

    Since transformers 5 it takes Qwen2Tokenizer for model_type qwen2, whatever is in the files.
    """
    if family != "qwen2" or json.dumps(_QWEN2_SPLIT) in tokenizer_json.decode():
        return []
    return [
        "AutoTokenizer of transformers 5 splits text as Qwen 2 does for model_type qwen2, and this "
        "tokenizer does not: open it with PreTrainedTokenizerFast.from_pretrained"
    ]


def _steps(step: Any) -> Iterator[dict[str, Any]]:
    """A step, or those of a sequence."""
    if step and step["type"] == "Sequence":
        for part in step["processors"]:
            yield from _steps(part)
    elif step:
        yield step


def _without_tokens(step: dict[str, Any]) -> dict[str, Any]:
    """A step without the tokens that it adds: RobertaProcessing also trims the offsets of words."""
    if step["type"] == "RobertaProcessing":
        names = ("add_prefix_space", "trim_offsets")
        return {"type": "ByteLevel", **{name: step[name] for name in names}, "use_regex": True}
    return {} if step["type"] in _ADD_TOKENS else step


def _template(config: dict[str, Any], start: Sequence[int]) -> dict[str, Any]:
    """The step that puts tokens before a text, and before each of a pair."""
    token_of = {number: token for token, number in token_ids(config).items()}
    tokens = [token_of[number] for number in start]

    def pieces(text: str, kind: int) -> list[dict[str, Any]]:
        before = [{"SpecialToken": {"id": token, "type_id": kind}} for token in tokens]
        return [*before, {"Sequence": {"id": text, "type_id": kind}}]

    return {
        "type": "TemplateProcessing",
        "single": pieces("A", 0),
        "pair": pieces("A", 0) + pieces("B", 1),
        "special_tokens": {
            token: {"id": token, "ids": [number], "tokens": [token]}
            for token, number in zip(tokens, start)
        },
    }
