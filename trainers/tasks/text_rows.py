"""Texts to rows of a classifier, as build_shards makes them. Python 3.8 syntax."""

from __future__ import annotations

import json
import unicodedata
from itertools import islice
from typing import Any, Iterator, NamedTuple, Sequence, Tuple

import numpy as np

from textmill.schemas.errors import DataError, UsageError, flag
from textmill.schemas.format.metadata import Schema
from textmill.trainers.data.batches import Batch
from textmill.trainers.run.training_task import TextsToLabel

Texts = Tuple[str, ...]  # one, or two of a pair


class RowPart(NamedTuple):
    """A special token of a row (side None), or a text (side 0 or 1)."""

    side: int | None
    id: int  # of the special token
    type: int  # the token type of the part


class TextRows:
    """Texts to rows, cut and padded as the rows of a dataset."""

    def __init__(self, schema: Schema, tokenizer: Any):
        """Takes the schema of a classification dataset, and its tokenizer."""
        self._schema, self._tokenizer = schema, tokenizer
        self._truncation = schema.parameters["truncation"]
        normalize = schema.parameters.get("normalize", "none")
        self._normal_form = None if normalize == "none" else normalize.upper()
        if "text_pair_field" in schema.parameters:
            self._form = _pair_form(tokenizer)
        else:
            names = ("prefix_ids", "suffix_ids")
            before, after = ([RowPart(None, i, 0) for i in schema.parameters[n]] for n in names)
            self._form = [*before, RowPart(0, 0, 0), *after]
        self._room = schema.max_length - sum(part.side is None for part in self._form)

    def rows(self, texts: Sequence[Texts]) -> Batch:
        """Rows of texts or pairs, one segment each: the schema's features without labels."""
        schema = self._schema
        shape = len(texts), schema.max_length
        columns = {
            name: np.zeros(shape, schema.feature(name).dtype)
            for name in ("input_ids", "segment_ids", "token_type_ids")
            if any(feature.name == name for feature in schema.features)
        }
        columns["input_ids"][:] = schema.special_ids.get("pad", 0)
        sides = [self._encode([text[side] for text in texts]) for side in range(len(texts[0]))]
        for row, parts in enumerate(zip(*sides)):
            ids, types = self._fill_row(parts)
            columns["input_ids"][row, : len(ids)] = ids
            columns["segment_ids"][row, : len(ids)] = 1
            if "token_type_ids" in columns:
                columns["token_type_ids"][row, : len(ids)] = types
        return columns

    def batches(self, texts: Iterator[Texts], batch_size: int) -> Iterator[Batch]:
        """Batches of equal size; the last repeats its last text, with `row_weights` (uint8) 0."""
        while some := list(islice(texts, batch_size)):
            rows = self.rows(some + some[-1:] * (batch_size - len(some)))
            weights = np.arange(batch_size) < len(some)
            yield dict(rows, row_weights=weights.astype(np.uint8))

    def _encode(self, texts: Sequence[str]) -> list[list[int]]:
        if self._normal_form is not None:
            texts = [unicodedata.normalize(self._normal_form, text) for text in texts]
        encodings = self._tokenizer.encode_batch(texts, add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def _fill_row(self, parts: Sequence[list[int]]) -> tuple[list[int], list[int]]:
        lengths = _fit_lengths([len(part) for part in parts], self._room)
        ids: list[int] = []
        types: list[int] = []
        for part in self._form:
            piece = [part.id]
            if part.side is not None:
                piece = self._cut(parts[part.side], lengths[part.side])
            ids += piece
            types += [part.type] * len(piece)
        return ids, types

    def _cut(self, ids: list[int], length: int) -> list[int]:
        if length == len(ids):
            return ids
        head = {"head": length, "tail": 0, "head_tail": (length + 2) // 4}[self._truncation]
        return ids[:head] + ids[len(ids) - (length - head) :]


def _fit_lengths(lengths: list[int], room: int) -> list[int]:
    """Lengths that fit: the longer of two texts is cut until both are equal, then both are cut."""
    if len(lengths) == 1:
        return [min(lengths[0], room)]
    shorter = min(*lengths, room // 2)
    longer = min(max(lengths), room - shorter)
    return [longer, shorter] if lengths[0] > lengths[1] else [shorter, longer]


def _pair_form(tokenizer: Any) -> list[RowPart]:
    """The template of the tokenizer's post-processor: BERT's `[CLS] $A [SEP] $B:1 [SEP]:1`."""
    encoding = tokenizer.encode("Hello", "Hello")
    form: list[RowPart] = []
    for side, number, kind in zip(encoding.sequence_ids, encoding.ids, encoding.type_ids):
        part = RowPart(side, number if side is None else 0, kind)
        if side is None or form[-1:] != [part]:
            form.append(part)
    return form


def read_texts(texts: TextsToLabel, schema: Schema) -> Iterator[Texts]:
    """Texts, or those of a file: its lines, or the dataset's text fields from JSON Lines (.jsonl).

    Blank lines of JSON are skipped. Pairs in a file come only from JSON Lines.

    Raises:
      UsageError: the model needs pairs, and these are single texts, or the other way round.
      DataError: the file cannot be read, or a line lacks a text; names it.
    """
    if not isinstance(texts, str):
        return _given(texts, 2 if "text_pair_field" in schema.parameters else 1)
    names = ("text_field", "text_pair_field")
    fields = [schema.parameters[name] for name in names if name in schema.parameters]
    return _lines(texts, fields)


def _given(texts: Sequence[str | Sequence[str]], parts: int) -> Iterator[Texts]:
    for number, given in enumerate(texts, 1):
        text = (given,) if isinstance(given, str) else tuple(given)
        if len(text) != parts or not all(isinstance(part, str) for part in text):
            due = "a text" if parts == 1 else "two texts, a pair"
            raise UsageError(f"texts: text {number:,} is {given!r:.60}: give {due}")
        yield text


def _lines(path: str, fields: Sequence[str]) -> Iterator[Texts]:
    is_json = path.endswith(".jsonl")
    if len(fields) == 2 and not is_json:
        raise UsageError(
            f"{flag('input', path)}: the model classifies pairs: give a .jsonl file with the "
            f"fields {' and '.join(fields)} in each line"
        )
    try:
        with open(path, "rb") as file:
            for number, line in enumerate(file, 1):
                where = f"{flag('input', path)}: line {number:,}"
                try:
                    text = line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
                    line_value = json.loads(text) if is_json and text.strip() else text
                    json.dumps(line_value, ensure_ascii=False).encode()  # no lone surrogates
                except (ValueError, RecursionError) as error:
                    kind = "JSON" if is_json else "UTF-8"
                    raise DataError(f"{where} is not {kind} ({error}): repair the file") from error
                if not is_json:
                    yield (text,)
                elif text.strip():
                    yield tuple(_field(line_value, name, where) for name in fields)
    except OSError as error:
        raise DataError(f"{flag('input', path)} cannot be read: {error}") from error


def _field(line_value: Any, name: str, where: str) -> str:
    """The field `a.b`, else the field b of the object a, as build_shards reads it."""
    value = line_value.get(name) if isinstance(line_value, dict) else None
    if value is None:
        value = line_value
        for part in name.split("."):
            value = value.get(part) if isinstance(value, dict) else None
    if not isinstance(value, str):
        names = ", ".join(line_value) or "nothing" if isinstance(line_value, dict) else "no object"
        raise DataError(f"{where} has no text in the field {name!r}; it holds {names}")
    return value
