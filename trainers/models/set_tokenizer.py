"""The tokenizer of a set or of published weights: kept beside a run, compared, used for prompts.

The package `tokenizers` is imported where text is.
"""

import json
import os
from pathlib import Path
from typing import Any, Dict, List, Tuple

from schemas.errors import DataError, UsageError
from schemas.metadata import Schema
from schemas.typed_json import load_json, read_bounded
from schemas.untrusted.tokenizer_bounds import (
    check_vocabulary,
    read_tokenizer_json,
    resolve_ids,
    token_ids,
    try_tokenizer,
)
from trainers.data.batches import BatchReader
from trainers.data.mixture import Mixture
from trainers.data.shard_set import ShardSet

TOKENIZER, SCHEMA = "tokenizer.json", "schema.json"


def sets_of(shards: BatchReader) -> List[ShardSet]:
    """The sets that a reader reads: one, or those of a mixture, which have one tokenizer."""
    if isinstance(shards, Mixture):
        return list(shards.parts)
    assert isinstance(shards, ShardSet)
    return [shards]


def set_file(shards: BatchReader, name: str) -> bytes:
    """A metadata file of a set, or of the first of a mixture."""
    return _read(Path(sets_of(shards)[0].locate(name)), "copy the set again")


def _read(path: Path, remedy: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error}; {remedy}") from error


def keep_set_files(shards: BatchReader, output: Path) -> None:
    """Copies contract and tokenizer into a run's directory: it is of use without the set then."""
    for name in (SCHEMA, TOKENIZER):
        partial = output / (name + ".partial")
        partial.write_bytes(set_file(shards, name))
        os.replace(str(partial), str(output / name))


def read_schema(directory: Path) -> Schema:
    """The contract that lies in a directory, such as a run's; a DataError where it does not."""
    path = str(directory / SCHEMA)
    return Schema.from_dict(load_json(path), path)


def read_tokenizer(directory: Path) -> bytes:
    """The tokenizer.json that lies in a directory, such as a run's; a DataError if none does."""
    return _read(directory / TOKENIZER, "copy it from the set that was trained on")


def check_same_tokens(
    tokenizer_json: bytes, directory: str, *, flag: str = "--init_from="
) -> List[str]:
    """Refuses published weights whose tokenizer gives other ids than the set's.

    Tokens and merges that only one of them has are no difference: a vocabulary may have grown.
    Errors name the directory after `flag`. Gives a line where there is nothing to compare.

    Raises:
      UsageError: the tokenizer is another.
      DataError: a file of it cannot be read.
    """
    theirs, their_merges = _published_tokens(Path(directory))
    if not theirs:
        return [
            f"{flag}{directory} has neither tokenizer.json nor vocab.json nor vocab.txt: nothing "
            "shows whether the set has the tokenizer of these weights"
        ]
    config = read_tokenizer_json(tokenizer_json, TOKENIZER)
    token_of = {number: token for token, number in token_ids(config).items()}
    other = {n: t for t, n in theirs.items() if n in token_of and token_of[n] != t}
    pair = next((pair for pair in zip(their_merges, _merges(config)) if pair[0] != pair[1]), None)
    if other:
        number = min(other)
        what = (
            f"id {number} is {other[number]!r} there and {token_of[number]!r} in the set "
            f"({len(other):,} ids differ)"
        )
    elif pair:
        what = f"the merge {pair[0]} there stands where {pair[1]} does in the set"
    else:
        return []
    raise UsageError(
        f"{flag}{directory}: its tokenizer is not the set's: {what}. Build the set with the "
        "tokenizer of these weights, or give others"
    )


Merge = Tuple[str, ...]


def _published_tokens(directory: Path) -> Tuple[Dict[str, int], List[Merge]]:
    """Every token and its id, and the merges of a BPE; none of a directory without a tokenizer."""
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
    """The merges of a tokenizer.json, which are "a b" in old files and ["a", "b"] in new ones."""
    merges = config["model"].get("merges") or []
    return [tuple(m.split(" ") if isinstance(m, str) else m) for m in merges]


def open_tokenizer(tokenizer_json: bytes) -> Any:
    """A `tokenizers.Tokenizer` that neither cuts nor pads; a DataError of one that is not sound."""
    try:
        # --help and runs without text spare it.
        from tokenizers import Tokenizer
    except ImportError as error:
        raise UsageError(
            "text is encoded with the package tokenizers, which is not installed: "
            "pip install tokenizers"
        ) from error
    config = read_tokenizer_json(tokenizer_json, TOKENIZER)
    try_tokenizer(config, TOKENIZER)
    try:
        tokenizer = Tokenizer.from_buffer(tokenizer_json)
        tokenizer.no_truncation()
        tokenizer.no_padding()
        written = tokenizer.to_str().encode("utf-8")
    except BaseException as error:  # a panic in Rust is no Exception
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise DataError(
            f"{TOKENIZER} cannot be read: {str(error)[:300]!r}; take it from the set anew"
        ) from error
    resolve_ids(read_tokenizer_json(written, TOKENIZER), TOKENIZER)
    return tokenizer
