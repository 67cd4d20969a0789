"""The tokenizer of a dataset or of published weights: copied to a run, compared, used for prompts.

The package `tokenizers` is imported only to encode text.
"""

import json
import os
from pathlib import Path
from typing import Any, Dict, List, Tuple

from schemas.errors import DataError, UsageError
from schemas.local_file import open_regular
from schemas.metadata import Schema
from schemas.tokenizer_json import (
    check_vocabulary,
    read_tokenizer_json,
    resolve_ids,
    token_ids,
    try_tokenizer,
)
from schemas.typed_json import load_json, read_bounded
from trainers.data.batches import BatchReader
from trainers.data.mixture import Mixture
from trainers.data.shard_set import ShardSet

TOKENIZER, SCHEMA = "tokenizer.json", "schema.json"


def sets_of(shards: BatchReader) -> List[ShardSet]:
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


def check_same_tokens(
    tokenizer_json: bytes, directory: str, *, flag: str = "--init_from="
) -> List[str]:
    """Refuses published weights whose tokenizer gives other ids than the dataset's.

    Tokens and merges of one of the two do not count as a difference: a vocabulary may have grown.
    Errors name the directory after `flag`. Returns a note if the directory has no tokenizer.

    Raises:
      UsageError: the tokenizers differ.
      DataError: a tokenizer file cannot be read.
    """
    theirs, their_merges = _published_tokens(Path(directory))
    if not theirs:
        return [
            f"{flag}{directory} has neither tokenizer.json nor vocab.json nor vocab.txt, so its "
            "tokenizer could not be compared with the dataset's"
        ]
    config = read_tokenizer_json(tokenizer_json, TOKENIZER)
    token_of = {number: token for token, number in token_ids(config).items()}
    other = {n: t for t, n in theirs.items() if n in token_of and token_of[n] != t}
    pair = next((pair for pair in zip(their_merges, _merges(config)) if pair[0] != pair[1]), None)
    if other:
        number = min(other)
        what = (
            f"id {number} is {other[number]!r} there and {token_of[number]!r} in the dataset "
            f"({len(other):,} ids differ)"
        )
    elif pair:
        what = f"the merge {pair[0]} there is {pair[1]} in the dataset"
    else:
        return []
    raise UsageError(
        f"{flag}{directory}: its tokenizer is not the dataset's: {what}. Build the dataset with "
        "the tokenizer of these weights, or give other weights"
    )


Merge = Tuple[str, ...]


def _published_tokens(directory: Path) -> Tuple[Dict[str, int], List[Merge]]:
    """Tokens to ids, and the merges of BPE; both empty for a directory without a tokenizer."""
    whole, lines = directory / TOKENIZER, directory / "vocab.txt"
    vocabulary, merges = directory / "vocab.json", directory / "merges.txt"
    try:
        if whole.is_file():
            config = read_tokenizer_json(read_bounded(str(whole)), str(whole))
            return token_ids(config), _merges(config)
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


def _lines(path: Path) -> List[str]:
    lines = read_bounded(str(path)).decode("utf-8").replace("\r\n", "\n").split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def _merges(config: Dict[str, Any]) -> List[Merge]:
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


def leading_ids(tokenizer: Any) -> List[int]:
    """The ids that a `tokenizers.Tokenizer` puts before every text."""
    encoding = tokenizer.encode("a")
    return encoding.ids[: [*encoding.special_tokens_mask, 0].index(0)]
