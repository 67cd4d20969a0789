"""The tokenizer of a set or of published weights: kept beside a run, compared, used for prompts.

The package `tokenizers` is imported where text is.
"""

import json
import os
from pathlib import Path
from typing import Any, Dict, List

from schemas.errors import DataError, UsageError
from schemas.sidecar import Schema
from schemas.tokenizer_bounds import check_vocabulary, read_tokenizer_json, resolve_ids, token_ids
from schemas.tokenizer_trial import try_tokenizer
from schemas.typed_json import load_json
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
    """A sidecar of a set, or of the first of a mixture."""
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


def kept_schema(directory: Path) -> Schema:
    """The contract that lies in a directory, such as a run's; a DataError where it does not."""
    path = str(directory / SCHEMA)
    return Schema.from_dict(load_json(path), path)


def kept_tokenizer(directory: Path) -> bytes:
    """The tokenizer.json that lies in a directory, such as a run's; a DataError if none does."""
    return _read(directory / TOKENIZER, "copy it from the set that was trained on")


def check_same_tokens(tokenizer_json: bytes, directory: str, *, flag: str) -> None:
    """Refuses published weights whose tokenizer gives other ids than the set's.

    Tokens that only one of them has are no difference: a vocabulary may have grown. A directory
    with neither tokenizer.json nor GPT-2's vocab.json passes; `flag` is the one that gave it.
    """
    theirs = _published_ids(directory)
    ours = token_ids(read_tokenizer_json(tokenizer_json, TOKENIZER))
    token_of = {number: token for token, number in ours.items()}
    other = {n: t for t, n in theirs.items() if n in token_of and token_of[n] != t}
    if other:
        number = min(other)
        raise UsageError(
            f"{flag}={directory}: its tokenizer is not the set's: id {number} is {other[number]!r} "
            f"there and {token_of[number]!r} in the set ({len(other):,} ids differ). Build the set "
            "with the tokenizer of these weights, or give others"
        )


def _published_ids(directory: str) -> Dict[str, int]:
    """Every token and its id; no tokens of a directory without a tokenizer."""
    whole, vocabulary = (Path(directory) / name for name in (TOKENIZER, "vocab.json"))
    try:
        if whole.is_file():
            return token_ids(read_tokenizer_json(whole.read_bytes(), str(whole)))
        if not vocabulary.is_file():
            return {}
        vocab = json.loads(vocabulary.read_bytes())
        check_vocabulary(vocab, str(vocabulary))
        return vocab
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{directory}: its tokenizer cannot be read: {error!r}") from error


def open_tokenizer(tokenizer_json: bytes) -> Any:
    """A `tokenizers.Tokenizer` that neither cuts nor pads; a DataError of one that is not sound."""
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise UsageError(
            "text is encoded with the package tokenizers, which is not installed: "
            "pip install tokenizers"
        ) from error
    config = read_tokenizer_json(tokenizer_json, TOKENIZER)
    try_tokenizer(tokenizer_json, config, TOKENIZER)
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
