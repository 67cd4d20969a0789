"""A row of token ids -> the pieces of text that a person reads. Pure, and the same for every task.

What a feature means is told by its name and shape: `input_ids` and other `..._ids` that have
segments are text, features of the same length (`loss_weights`, `prefix_mask`) mark places of it,
and what is left (`label`, `example_id`) is one fact about the row.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from pipelines.encoding.tokenizer import LoadedTokenizer
from pipelines.inspection.read_rows import sequences
from schemas.commands.terminal import visible
from schemas.metadata import Schema

TEXT, SPECIAL, PADDING = "text", "special", "padding"
REPLACED, RANDOM, KEPT = "mask", "random", "kept"  # what masking made of a token
LOSS, PREFIX = "loss_weights", "prefix_mask"  # marks that are drawn in a way of their own

LABEL, EXAMPLE_ID = "label", "example_id"

_MASKS = ("masked_positions", "masked_ids", "masked_weights")
_LONGEST_FACT = 100  # characters


@dataclass(frozen=True)
class Piece:
    """Some neighbouring tokens of a row that look alike."""

    segment: int  # 1..n; 0 for padding
    place: int  # of its first token in the row
    tokens: int
    kind: str  # text, special, padding, or mask, random or kept for one masked token
    text: str  # of the document; of padding nothing
    now: str  # what a masked token became, else equal to `text`
    marks: tuple[str, ...] = ()  # features that are not 0 here, such as loss_weights


class TokenTexts:
    """Text of tokens, as they stand in a sentence."""

    def __init__(self, tokenizer: LoadedTokenizer):
        """Takes the tokenizer that the set carries."""
        self._tokenizer = tokenizer
        self._special = frozenset(tokenizer.all_special_ids)

    @classmethod
    def from_json(cls, tokenizer_json: bytes) -> "TokenTexts":
        """From the bytes of tokenizer.json.

        Raises:
          DataError: it is broken.
        """
        return cls(LoadedTokenizer(tokenizer_json))

    def text(self, ids: list[int]) -> str:
        r"""Text of neighbouring tokens; bytes that are no whole character become \xe2.

        Line ends become "↵" and other control characters \x1b, so that no text can command a
        terminal.
        """
        return visible(b"".join(map(self._of, ids)).decode("utf-8", "backslashreplace"))

    def spell(self, ids: np.ndarray) -> tuple[bytes, np.ndarray]:
        """The bytes of many tokens, one after another, and int64 [n + 1] where each begins.

        Args:
          ids: [n], all of them the tokenizer's.
        """
        spelt = self._all.take(pa.array(ids.astype(np.int64)))
        _, offsets, data = spelt.buffers()
        bounds = np.frombuffer(offsets, np.int64)[spelt.offset : spelt.offset + len(ids) + 1]
        return (data.to_pybytes() if data is not None else b""), bounds

    @cached_property
    def _all(self) -> pa.LargeBinaryArray:
        """Every token's bytes: 0.1 s for 50,000, which who reads a few rows does without."""
        return pa.array(map(self._of, range(self._tokenizer.vocab_size)), pa.large_binary())

    def _of(self, token: int) -> bytes:
        """The bytes of one token in a sentence."""
        tokenizer = self._tokenizer
        if not 0 <= token < tokenizer.vocab_size:
            return f"<id {token}>".encode()
        spelt = tokenizer.token_bytes[token]
        if token in self._special:
            return spelt
        # WordPiece marks what goes on with a word ("##ing").
        spelt = spelt.removeprefix(tokenizer.continuing_prefix.encode())
        spelt = spelt.replace("▁".encode(), b" ")
        # Byte-level tokens hold their spaces; of others the space before a word is put back.
        if tokenizer.is_byte_level or spelt.decode(errors="replace")[:1].isspace():
            return spelt
        return b" " + spelt if tokenizer.is_word_start[token] else spelt


def _marks(schema: Schema, sequence: str) -> list[str]:
    """Features that tell something of each place of a sequence."""
    if sequence != "input_ids" or schema.holds_documents:
        return []
    streams = sequences(schema)
    texts = {*streams, *streams.values(), *_MASKS}
    shape = schema.feature(sequence).shape
    # Features of the first sequence stand beside all others as well, where lengths are equal.
    return [f.name for f in schema.features if f.shape == shape and f.name not in texts]


def row_facts(row: Mapping[str, np.ndarray], schema: Schema) -> dict[str, str]:
    """What a row says beside its text: {"label": "1 (pos)", "example_id": "00000001000000ff"}.

    A feature that is 0 is left out, but for a label.
    """
    streams = sequences(schema)
    told = {*streams, *streams.values(), *_MASKS, *_marks(schema, "input_ids")}
    facts = {}
    for feature in schema.features:
        values = row[feature.name]
        if feature.name in told or (feature.name != LABEL and not values.any()):
            continue
        if feature.name == EXAMPLE_ID:  # as evaluation.jsonl has it
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
    """Cuts one row, its columns [L] and [K] decoded, into pieces, in the order of its places."""
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
        for place, token in zip(
            row["masked_positions"][used].tolist(), row["masked_ids"][used].tolist(), strict=True
        ):
            was[place] = token
            kinds[place] = (
                REPLACED
                if now[place] == schema.special_ids["mask"]
                else (KEPT if now[place] == token else RANDOM)
            )
    marks: list[tuple[str, ...]] = [()] * len(kinds)
    for name in _marks(schema, sequence):
        for place in np.flatnonzero(row[name]).tolist():
            marks[place] = (*marks[place], name)
    looks = list(zip(segment_ids, kinds, marks, strict=True))
    pieces = []
    start = 0
    for place in range(1, len(looks) + 1):
        merges = kinds[start] in (TEXT, PADDING)
        if place < len(looks) and merges and looks[place] == looks[start]:
            continue
        kind, part = kinds[start], slice(start, place)
        old, new = (
            ("", "") if kind == PADDING else (texts.text(ids[part].tolist()) for ids in (was, now))
        )
        pieces.append(Piece(segment_ids[start], start, place - start, kind, old, new, marks[start]))
        start = place
    return pieces
