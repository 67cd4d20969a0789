"""Turns a row of token ids into pieces of text that a person can read, for every task. Pure.

Names and shapes determine how features are shown: `input_ids` and other `..._ids` with segments are
text, features of the same length (`loss_weights`, `prefix_mask`) mark positions of the text, and
all others (`label`, `example_id`) are facts about the row.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from textmill.pipelines.encoding.tokenizer import LoadedTokenizer
from textmill.pipelines.inspection.read_rows import sequences
from textmill.schemas.commands.terminal import visible
from textmill.schemas.format.metadata import Schema

TEXT, SPECIAL, PADDING = "text", "special", "padding"
REPLACED, RANDOM, KEPT = "mask", "random", "kept"  # what a masked token became
LOSS, PREFIX = "loss_weights", "prefix_mask"  # marks with a style of their own

LABEL, EXAMPLE_ID = "label", "example_id"
MASKS = ("masked_positions", "masked_ids", "masked_weights")
_LONGEST_FACT = 100  # characters


@dataclass(frozen=True)
class Piece:
    """Adjacent tokens of a row that are shown alike."""

    segment: int  # 1..n; 0 for padding
    position: int  # of its first token in the row
    tokens: int
    kind: str  # text, special, padding, or mask, random or kept for one masked token
    text: str  # of the document; empty for padding
    now: str  # the text after masking; equal to `text` elsewhere
    marks: tuple[str, ...] = ()  # features that are nonzero here, such as loss_weights


class TokenTexts:
    """Spells tokens as they appear in running text."""

    def __init__(self, tokenizer: LoadedTokenizer):
        """Takes the tokenizer of the dataset."""
        self._tokenizer = tokenizer
        self._special = frozenset(tokenizer.all_special_ids)

    def text(self, ids: list[int]) -> str:
        r"""Returns the text of adjacent tokens; incomplete UTF-8 becomes \xe2.

        Line ends become "↵" and other control characters \x1b, so that no text controls the
        terminal.
        """
        return visible(b"".join(map(self._of, ids)).decode("utf-8", "backslashreplace"))

    def spell(self, ids: np.ndarray) -> tuple[bytes, np.ndarray]:
        """Returns the bytes of n tokens, all below vocab_size, and their offsets, int64 [n + 1]."""
        spelt = self._all.take(pa.array(ids.astype(np.int64)))
        _, offsets, data = spelt.buffers()
        bounds = np.frombuffer(offsets, np.int64)[spelt.offset : spelt.offset + len(ids) + 1]
        return (data.to_pybytes() if data is not None else b""), bounds

    @cached_property
    def _all(self) -> pa.LargeBinaryArray:
        """The bytes of every token. Takes 0.1 s for 50,000, so only `spell` computes it."""
        return pa.array(map(self._of, range(self._tokenizer.vocab_size)), pa.large_binary())

    def _of(self, token: int) -> bytes:
        """Returns the bytes of one token in running text."""
        tokenizer = self._tokenizer
        if not 0 <= token < tokenizer.vocab_size:
            return f"<id {token}>".encode()
        spelt = tokenizer.token_bytes[token]
        if token in self._special:
            return spelt
        # WordPiece marks tokens that continue a word ("##ing").
        spelt = spelt.removeprefix(tokenizer.continuing_prefix.encode())
        spelt = spelt.replace("▁".encode(), b" ")
        # Byte-level tokens include their spaces; others need the space before a word restored.
        if tokenizer.is_byte_level or spelt.decode(errors="replace")[:1].isspace():
            return spelt
        return b" " + spelt if tokenizer.is_word_start[token] else spelt


def _marks(schema: Schema, sequence: str) -> list[str]:
    """Returns the features that have one value per position of a sequence."""
    if sequence != "input_ids" or schema.holds_documents:
        return []
    streams = sequences(schema)
    texts = {*streams, *streams.values(), *MASKS}
    shape = schema.feature(sequence).shape
    # If lengths are equal, these features would match the other sequences too.
    return [f.name for f in schema.features if f.shape == shape and f.name not in texts]


def row_facts(row: Mapping[str, np.ndarray], schema: Schema) -> dict[str, str]:
    """Returns features that are not text: {"label": "1 (pos)", "example_id": "00000001000000ff"}.

    Omits features that are 0, except a label.
    """
    streams = sequences(schema)
    shown = {*streams, *streams.values(), *MASKS, *_marks(schema, "input_ids")}
    facts = {}
    for feature in schema.features:
        values = row[feature.name]
        if feature.name in shown or (feature.name != LABEL and not values.any()):
            continue
        if feature.name == EXAMPLE_ID:  # written as in evaluation.jsonl
            text = "".join(f"{half:08x}" for half in values.tolist())
        else:
            text = " ".join(map(str, values.ravel().tolist()))
        classes = schema.parameters.get("classes", ())
        if feature.name == LABEL and 0 <= int(values) < len(classes):
            text += f" ({visible(str(classes[int(values)]))})"
        facts[feature.name] = text if len(text) <= _LONGEST_FACT else text[:_LONGEST_FACT] + "…"
    return facts


def row_pieces(
    row: Mapping[str, np.ndarray], schema: Schema, texts: TokenTexts, sequence: str = "input_ids"
) -> list[Piece]:
    """Cuts one decoded row, columns [L] and [K], into pieces in the order of their positions."""
    now = row[sequence].astype(np.int64)
    was = now.copy()
    segment_ids = row[sequences(schema)[sequence]].tolist()
    special = set(schema.all_special_ids)
    kinds = [
        PADDING if segment == 0 else SPECIAL if token in special else TEXT
        for segment, token in zip(segment_ids, now.tolist(), strict=True)
    ]
    if schema.static_masking and sequence == "input_ids":
        used = np.flatnonzero(row["masked_weights"])
        for position, token in zip(
            row["masked_positions"][used].tolist(), row["masked_ids"][used].tolist(), strict=True
        ):
            was[position] = token
            kinds[position] = (
                REPLACED
                if now[position] == schema.special_ids["mask"]
                else (KEPT if now[position] == token else RANDOM)
            )
    marks: list[tuple[str, ...]] = [()] * len(kinds)
    for name in _marks(schema, sequence):
        for position in np.flatnonzero(row[name]).tolist():
            marks[position] = (*marks[position], name)
    looks = list(zip(segment_ids, kinds, marks, strict=True))
    pieces = []
    start = 0
    for stop in range(1, len(looks) + 1):
        merges = kinds[start] in (TEXT, PADDING)
        if stop < len(looks) and merges and looks[stop] == looks[start]:
            continue
        kind, part = kinds[start], slice(start, stop)
        old, new = (
            ("", "") if kind == PADDING else (texts.text(ids[part].tolist()) for ids in (was, now))
        )
        pieces.append(Piece(segment_ids[start], start, stop - start, kind, old, new, marks[start]))
        start = stop
    return pieces
