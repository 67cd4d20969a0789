"""Texts for a classifier, from a file and as rows, and what it says of them. Python 3.8 syntax.

rows = TextRows(schema, open_tokenizer(tokenizer_json))
rows.rows([("A fine film.",)])["input_ids"]      # uint16 [1, L]
"""

import json
import os
import unicodedata
from contextlib import suppress
from itertools import islice
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from schemas.commands.terminal import say
from schemas.errors import DataError
from schemas.sidecar import Schema
from trainers.data.batches import Batch
from trainers.measures.class_scores import probabilities

Texts = Tuple[str, ...]  # one, or two of a pair
_BOM = b"\xef\xbb\xbf"


class FormPart(NamedTuple):
    """A special token of a row, of side None, or one of its texts, of side 0 or 1."""

    side: Optional[int]
    id: int
    type: int  # of all its tokens


class TextRows:
    """Texts to rows, cut and filled up as those of a set."""

    def __init__(self, schema: Schema, tokenizer: Any):
        """Takes the contract of a classification set, and its tokenizer."""
        self._schema, self._tokenizer = schema, tokenizer
        self._truncation = schema.parameters["truncation"]
        normalize = schema.parameters.get("normalize", "none")
        self._normal_form = None if normalize == "none" else normalize.upper()
        if "text_pair_field" in schema.parameters:
            self._form = _pair_form(tokenizer)
        else:
            names = ("prefix_ids", "suffix_ids")
            before, after = ([FormPart(None, i, 0) for i in schema.parameters[n]] for n in names)
            self._form = [*before, FormPart(0, 0, 0), *after]
        self._room = schema.max_length - sum(part.side is None for part in self._form)

    def rows(self, texts: Sequence[Texts]) -> Batch:
        """Rows of texts, or of pairs: the contract's features but labels, in one segment."""
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
            ids, types = self._filled(parts)
            columns["input_ids"][row, : len(ids)] = ids
            columns["segment_ids"][row, : len(ids)] = 1
            if "token_type_ids" in columns:
                columns["token_type_ids"][row, : len(ids)] = types
        return columns

    def batches(self, texts: Iterator[Texts], batch_size: int) -> Iterator[Batch]:
        """Rows of one size a batch; the last is filled up, with `row_weights` uint8 0."""
        while True:
            some = list(islice(texts, batch_size))
            if not some:
                return
            filling = batch_size - len(some)
            rows = self.rows(some + some[-1:] * filling)
            weights = np.arange(batch_size) < len(some)
            yield dict(rows, row_weights=weights.astype(np.uint8))

    def _encode(self, texts: Sequence[str]) -> List[List[int]]:
        if self._normal_form is not None:
            texts = [unicodedata.normalize(self._normal_form, text) for text in texts]
        encodings = self._tokenizer.encode_batch(texts, add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def _filled(self, parts: Sequence[List[int]]) -> Tuple[List[int], List[int]]:
        """Ids and token types of one row."""
        kept = _kept([len(part) for part in parts], self._room)
        ids: List[int] = []
        types: List[int] = []
        for part in self._form:
            piece = [part.id]
            if part.side is not None:
                piece = self._cut(parts[part.side], kept[part.side])
            ids += piece
            types += [part.type] * len(piece)
        return ids, types

    def _cut(self, ids: List[int], kept: int) -> List[int]:
        if kept == len(ids):
            return ids
        head = {"head": kept, "tail": 0, "head_tail": (kept + 2) // 4}[self._truncation]
        return ids[:head] + ids[len(ids) - (kept - head) :]


def _kept(lengths: List[int], room: int) -> List[int]:
    """Lengths that fit: the longer of two texts is cut until both are as long, then both are."""
    if len(lengths) == 1:
        return [min(lengths[0], room)]
    shorter = min(*lengths, room // 2)
    longer = min(max(lengths), room - shorter)
    return [longer, shorter] if lengths[0] > lengths[1] else [shorter, longer]


def _pair_form(tokenizer: Any) -> List[FormPart]:
    """What its post-processor makes of two texts: BERT's `[CLS] $A [SEP] $B:1 [SEP]:1`."""
    encoding = tokenizer.encode("Hello", "Hello")
    form: List[FormPart] = []
    for side, number, kind in zip(encoding.sequence_ids, encoding.ids, encoding.type_ids):
        part = FormPart(side, number if side is None else 0, kind)
        if side is None or form[-1:] != [part]:
            form.append(part)
    return form


def read_texts(path: str, schema: Schema) -> Iterator[Texts]:
    r"""Texts of a file, one line at a time.

    Of JSON Lines (.jsonl) the fields that the set was made of, blank lines left out; of any other
    file each line, an empty one too, a pair's two texts with a tab between them.

    Raises:
      DataError: the file cannot be read, or a line has no such texts; names it.
    """
    names = ("text_field", "text_pair_field")
    fields = [schema.parameters[name] for name in names if name in schema.parameters]
    try:
        with open(path, "rb") as file:
            for number, line in enumerate(file, 1):
                line = line[len(_BOM) :] if number == 1 and line.startswith(_BOM) else line
                place = f"--predict={path}: line {number:,}"
                if not path.endswith(".jsonl"):
                    yield _texts_of(line, len(fields), place)
                elif line.strip():
                    yield tuple(_field(_object(line, place), name, place) for name in fields)
    except OSError as error:
        raise DataError(f"--predict={path} cannot be read: {error}") from error


def _texts_of(line: bytes, count: int, place: str) -> Texts:
    line = line[:-1] if line.endswith(b"\n") else line
    line = line[:-1] if line.endswith(b"\r") else line
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{place} is not UTF-8 ({error}): convert the file, or mend it") from error
    texts = tuple(text.split("\t", 1)) if count == 2 else (text,)
    if len(texts) < count:
        raise DataError(f"{place} has no tab: the model takes two texts, with a tab between them")
    return texts


def _object(line: bytes, place: str) -> Dict[str, Any]:
    try:
        found = json.loads(line.decode("utf-8"))
    except ValueError as error:
        raise DataError(f"{place} is no JSON ({error}): mend it, or name the file .txt") from error
    if not isinstance(found, dict):
        raise DataError(f'{place} holds a {type(found).__name__}, not an object: {{"text": "..."}}')
    return found


def _field(found: Dict[str, Any], name: str, place: str) -> str:
    value: Any = found
    for part in name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    if not isinstance(value, str):
        raise DataError(
            f"{place} has no text in the field {name!r}, which the model's set was made of: it "
            f"holds {', '.join(found) or 'nothing'}"
        )
    return value


# A class's name may hold what separates lines and columns.
_ESCAPED = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


def write_predictions(
    logits: Iterable[np.ndarray], classes: Sequence[str], path: Optional[str]
) -> None:
    """Writes a line for each text, of logits [B, C] of one batch after the other.

    The file is there whole or not at all; without a path the lines are printed.

    Raises:
      DataError: the file cannot be written.
    """
    names = [name.translate(_ESCAPED) for name in classes]
    rows = (row_C for batch_BxC in logits for row_C in probabilities(batch_BxC))
    lines = (f"{names[row_C.argmax()]}\t{row_C.max():.6f}" for row_C in rows)
    if path is None:
        for line in lines:
            say(line)
        return
    partial = path + ".partial"
    try:
        with open(partial, "w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)
        os.replace(partial, path)
    except OSError as error:
        with suppress(OSError):
            os.remove(partial)
        raise DataError(
            f"--predictions={path} cannot be written: {error}; free some space, or give another "
            "place"
        ) from error
