"""The tokenizer of a dataset or of published weights: copied to a run, compared, used for prompts.

The package `tokenizers` is imported only to encode text.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Dict, Tuple

from textmill.schemas.errors import DataError, UsageError, flag
from textmill.schemas.files.store import open_regular
from textmill.schemas.format.metadata import Schema
from textmill.schemas.tokenizers.tokenizer_files import (
    LINES,
    MERGES,
    VOCABULARY,
    assemble,
    complete,
)
from textmill.schemas.tokenizers.tokenizer_json import (
    MOST_BYTES,
    check_vocabulary,
    read_tokenizer_json,
    resolve_ids,
    token_ids,
    try_tokenizer,
)
from textmill.schemas.typed_json import load_json, read_bounded
from textmill.trainers.data.batches import BatchReader
from textmill.trainers.data.mixture import Mixture
from textmill.trainers.data.shard_set import ShardSet

TOKENIZER, SCHEMA = "tokenizer.json", "schema.json"


def sets_of(shards: BatchReader) -> list[ShardSet]:
    """The datasets of a reader: one, or those of a mixture, which share a tokenizer."""
    if isinstance(shards, Mixture):
        return list(shards.parts)
    assert isinstance(shards, ShardSet)
    return [shards]


def set_file(shards: BatchReader, name: str) -> bytes:
    """The content of a metadata file of a dataset, or of the first one of a mixture."""
    return _read(Path(sets_of(shards)[0].locate(name)), "copy the dataset again")


def _read(path: Path, remedy: str) -> bytes:
    try:
        with open_regular(str(path)) as file:
            return file.read()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error}; {remedy}") from error


def keep_set_files(shards: BatchReader, output: Path) -> None:
    """Copies schema and tokenizer to a run's directory, which then works without the dataset."""
    for name in (SCHEMA, TOKENIZER):
        partial = output / (name + ".partial")
        partial.write_bytes(set_file(shards, name))
        os.replace(str(partial), str(output / name))


def read_schema(directory: Path) -> Schema:
    """The schema.json of a directory, such as a run's; a DataError if it has none."""
    path = str(directory / SCHEMA)
    return Schema.from_dict(load_json(path), path)


def read_tokenizer(directory: Path) -> bytes:
    """The tokenizer.json of a directory, such as a run's; a DataError if it has none."""
    return _read(directory / TOKENIZER, "copy it from the training dataset")


def published_tokenizer(directory: Path) -> bytes | None:
    """The tokenizer.json of published weights, perhaps made of other files; None if there is none.

    Raises:
      DataError: a file of the tokenizer is broken.
    """
    config, _ = _published_config(str(directory))
    return None if config is None else json.dumps(config).encode()


_SETTINGS = ("normalizer", "pre_tokenizer", "model")  # of a tokenizer.json
# Capitals, accents, digits, spaces before, between and after words: what settings treat otherwise.
_PROBES = (
    *("The Film 2024", "the film", "film", " film", "The  Film", "film ", "\n\nThe\tfilm\r\n"),
    *(
        "don't WE'LL (it's)...",
        "Ærø på 17½ kr.",
        "e\u0301 \u00e9 \ufb01 \uff21 \u00a0\u3000x\u200b",
    ),
    *(
        "Привет, мир: 中文字符 और हिन्दी 🙂",
        "x1234567.89 a_b -- def f(x):\n        return x\n",
        "▁a ▁ b",
    ),
)


def check_same_tokens(
    tokenizer_json: bytes, directory: str, *, field: str = "init_from"
) -> list[str]:
    """Refuses published weights whose tokenizer gives other ids than the dataset's.

    Tokens and merges of one of the two do not count as a difference: a vocabulary may have grown.
    Errors name the directory, and the field. Returns a note if texts are split otherwise with the
    larger vocabulary, or if a part of the tokenizer could not be compared.

    Raises:
      UsageError: the tokenizers differ.
      DataError: a tokenizer file cannot be read.
    """
    where = flag(field, directory) if field else directory
    parts, (config, reason) = "", _published_config(directory)
    theirs, their_merges = _published_tokens(Path(directory), config)
    if not theirs:
        return [
            f"{where} has neither tokenizer.json nor vocab.json nor vocab.txt, so its "
            "tokenizer could not be compared with the dataset's"
        ]
    own = read_tokenizer_json(tokenizer_json, TOKENIZER)
    token_of = {number: token for token, number in token_ids(own).items()}
    other = {n: t for t, n in theirs.items() if n in token_of and token_of[n] != t}
    pair = next((pair for pair in zip(their_merges, _merges(own)) if pair[0] != pair[1]), None)
    if other:
        number = min(other)
        what = (
            f"id {number} is {other[number]!r} there and {token_of[number]!r} in the dataset "
            f"({len(other):,} ids differ)"
        )
    elif pair:
        what = f"the merge {pair[0]} there is {pair[1]} in the dataset"
    elif config is None:
        return [f"{where}: only tokens were compared with the dataset's: {reason}"]
    else:
        what, parts = _compare_settings(config, own)
    if what:
        raise UsageError(
            f"{where}: its tokenizer is not the dataset's: {what}. Build the dataset with "
            "the tokenizer of these weights, or give other weights"
        )
    assert config is not None
    notes = _compare_sizes(config, own, where)
    if parts:
        notes.append(
            f"{where}: the {parts} of its tokenizer is not the dataset's, though {len(_PROBES)} "
            "texts get the same ids"
        )
    return notes


Config = Dict[str, Any]
Merge = Tuple[str, ...]


def _published_config(directory: str) -> tuple[Config | None, str]:
    """The tokenizer.json of a directory, perhaps of other files; else None and why."""
    whole = os.path.join(directory, TOKENIZER)
    try:
        if os.path.isfile(whole):
            config = read_tokenizer_json(read_bounded(whole, MOST_BYTES), whole)
            complete(config, directory)
            return config, ""
        assembled = assemble(directory)
    except UsageError as error:
        return None, str(error)
    if assembled is None:
        return None, "merges.txt is missing"
    return read_tokenizer_json(json.dumps(assembled[0]).encode(), assembled[1]), ""


def _published_tokens(directory: Path, config: Config | None) -> tuple[dict[str, int], list[Merge]]:
    """Tokens to ids, and the merges of BPE; both empty for a directory without a tokenizer."""
    if config is not None:
        return token_ids(config), _merges(config)
    lines, vocabulary, merges = (directory / name for name in (LINES, VOCABULARY, MERGES))
    try:
        if vocabulary.is_file():
            vocab = json.loads(read_bounded(str(vocabulary)))
            check_vocabulary(vocab, str(vocabulary))
            pairs = _lines(merges) if merges.is_file() else []
            return vocab, [tuple(pair.split(" ")) for pair in pairs if pair[:9] != "#version:"]
        if lines.is_file():
            return {token: number for number, token in enumerate(_lines(lines))}, []
        return {}, []
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise DataError(f"{directory}: its tokenizer cannot be read: {error!r}") from error


def _with_vocabulary_of(own: Config, theirs: Config) -> Config:
    """Their normalizer, pre-tokenizer and model with our vocabulary, which may have grown."""
    model = {**theirs["model"], "vocab": own["model"]["vocab"]}
    if "merges" in own["model"]:
        model["merges"] = own["model"]["merges"]
    if isinstance(model["vocab"], list) and isinstance(theirs["model"]["vocab"], list):  # scores
        known = theirs["model"]["vocab"][: len(model["vocab"])]
        model["vocab"] = [*known, *model["vocab"][len(known) :]]
    if theirs["model"].get("type") != own["model"].get("type"):
        model = theirs["model"]
    return {**own, **{name: theirs.get(name) for name in _SETTINGS[:2]}, "model": model}


def _compare_settings(theirs: Config, own: Config) -> tuple[str, str]:
    """The first text that settings encode differently; the names of other settings that differ."""
    mixed = _with_vocabulary_of(own, theirs)
    if all(mixed[name] == own.get(name) for name in _SETTINGS):
        return "", ""
    text, (there, here) = _first_difference(mixed, own)
    # Old files lack keys that have their default.
    mixed, own = (json.loads(open_tokenizer(json.dumps(c).encode()).to_str()) for c in (mixed, own))
    parts = " and ".join(name for name in _SETTINGS if mixed[name] != own[name])
    if not text:
        return "", parts
    return f"{text!r} is {there} there and {here} in the dataset, by a different {parts}", ""


def _first_difference(theirs: Config, own: Config) -> tuple[str, tuple[list[str], list[str]]]:
    """The first of the probes with other ids, and its tokens in both; ("", ([], []))."""
    tokenizers = [open_tokenizer(json.dumps(config).encode()) for config in (theirs, own)]
    for text in _PROBES:
        there, here = (t.encode(text, add_special_tokens=False) for t in tokenizers)
        if there.ids != here.ids:
            return text, (there.tokens, here.tokens)
    return "", ([], [])


def _compare_sizes(theirs: Config, own: Config, where: str) -> list[str]:
    """A note if one has more merges, or tokens that are not added, than the other."""
    merges = [len(_merges(config)) for config in (theirs, own)]
    added = {t["content"] for c in (theirs, own) for t in c.get("added_tokens") or []}
    words = [len(token_ids(config).keys() - added) for config in (theirs, own)]
    kind, (there, here) = ("merges", merges) if any(merges) else ("tokens", words)
    if there == here:
        return []
    text, tokens = _first_difference(theirs, own)
    example = (
        f": {text!r} is {len(tokens[0])} tokens there and {len(tokens[1])} here" if text else ""
    )
    return [
        f"the dataset's tokenizer has {here:,} {kind} and that of {where} {there:,}, so it splits "
        f"texts otherwise{example}. Losses for a token cannot be compared; bits per byte can"
    ]


def _lines(path: Path) -> list[str]:
    lines = read_bounded(str(path)).decode("utf-8").replace("\r\n", "\n").split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def _merges(config: dict[str, Any]) -> list[Merge]:
    """The merges of a tokenizer.json: "a b" in old files, ["a", "b"] in new ones."""
    merges = config["model"].get("merges") or []
    return [tuple(m.split(" ") if isinstance(m, str) else m) for m in merges]


def open_tokenizer(tokenizer_json: bytes) -> Any:
    """A `tokenizers.Tokenizer` without truncation and padding; a DataError if it is unusable."""
    try:
        # --help and runs without text need no tokenizer.
        from tokenizers import Tokenizer
    except ImportError as error:
        raise UsageError(
            "the package tokenizers, which encodes text, is not installed: pip install tokenizers"
        ) from error
    config = read_tokenizer_json(tokenizer_json, TOKENIZER)
    try_tokenizer(config, TOKENIZER)
    try:
        tokenizer = Tokenizer.from_buffer(tokenizer_json)
        tokenizer.no_truncation()
        tokenizer.no_padding()
        content = tokenizer.to_str().encode("utf-8")
    except BaseException as error:  # a panic in Rust is not an Exception
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise DataError(
            f"{TOKENIZER} cannot be read: {str(error)[:300]!r}; copy it from the dataset again"
        ) from error
    resolve_ids(read_tokenizer_json(content, TOKENIZER), TOKENIZER)
    return tokenizer


def leading_ids(tokenizer: Any) -> list[int]:
    """The ids that a `tokenizers.Tokenizer` puts before every text."""
    encoding = tokenizer.encode("a")
    return encoding.ids[: [*encoding.special_tokens_mask, 0].index(0)]
