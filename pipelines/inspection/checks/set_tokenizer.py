"""Checks the tokenizer of a dataset."""

import os
from collections.abc import Iterator
from itertools import zip_longest

from textmill.pipelines.encoding.tokenizer import LoadedTokenizer, tokenizer_of_json
from textmill.pipelines.tasks.task import task_class
from textmill.schemas.errors import DataError
from textmill.schemas.files.set_files import FinishedFiles
from textmill.schemas.format.manifest import MANIFEST
from textmill.schemas.format.metadata import Schema
from textmill.schemas.tokenizers.tokenizer_json import odd_settings
from textmill.schemas.typed_json import load_json, quote, read_bounded

Surroundings = tuple[tuple[int, ...], tuple[int, ...]]


def load_tokenizer(files: FinishedFiles) -> LoadedTokenizer:
    """Loads the tokenizer, which takes a while."""
    path = files.fetch("tokenizer.json")
    if not os.path.isfile(path):
        raise DataError(f"{path} is missing, and not listed in {MANIFEST}")
    return tokenizer_of_json(read_bounded(path))


def check_ids(path: str, schema: Schema, tokenizer: LoadedTokenizer) -> None:
    """Raises DataError if the tokenizer at a path has other ids than the schema."""
    for name in ("vocab_size", "special_ids", "all_special_ids"):
        found, due = getattr(tokenizer, name), getattr(schema, name)
        if found != due:
            raise DataError(
                f"{path} has the {name} {quote(found)}, but schema.json has {quote(due)}"
            )


def config_problems(path: str, schema: Schema, tokenizer: LoadedTokenizer) -> Iterator[str]:
    """Finds roles in tokenizer_config.json that are not the schema's."""
    settings = load_json(path)
    if not isinstance(settings, dict):
        yield f"{path} holds a {type(settings).__name__}, not an object"
        return
    for name in odd_settings(settings, tokenizer.ids, schema.special_ids):
        yield f"{path}: {name} is {quote(settings.get(name))}, schema.json has another"


def find_surroundings(path: str, schema: Schema, tokenizer: LoadedTokenizer) -> Surroundings:
    """Returns the ids before and after each segment.

    Raises:
      DataError: the tokenizer encodes golden texts, or surrounds a text, in a different way.
    """
    if schema.golden != tokenizer.golden:
        pairs = zip_longest(tokenizer.golden, schema.golden)
        [found, due] = next((now, stated) for now, stated in pairs if now != stated)
        raise DataError(
            f"{path} gives the golden text and ids {quote(found)}, but schema.json has {quote(due)}"
        )
    task = task_class(schema.task)
    found = task.surroundings(schema, tokenizer)
    due = tuple(tuple(schema.parameters.get(n, ())) for n in ("prefix_ids", "suffix_ids"))
    if task.wraps_segments and due != found:
        raise DataError(f"{path} puts {found} around a text, but schema.json has {due}")
    return found
