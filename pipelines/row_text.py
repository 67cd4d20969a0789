"""A row of token ids -> the pieces of text that a person reads. Pure."""

import json
import unicodedata
from dataclasses import dataclass

import numpy as np

from pipelines.tokenization import LoadedTokenizer
from schemas.sidecar import Schema

TEXT, SPECIAL, PADDING = "text", "special", "padding"
REPLACED, RANDOM, KEPT = "mask", "random", "kept"  # what masking made of a token


@dataclass(frozen=True)
class Piece:
    """Some neighbouring tokens of a row that look alike.

    Attributes:
      segment: 1..n; 0 for padding.
      place: of its first token in the row.
      tokens: how many.
      kind: text, special, padding, or mask, random or kept for one masked token.
      text: what stood in the document; of padding nothing.
      now: what a masked token became, else equal to `text`.
    """

    segment: int
    place: int
    tokens: int
    kind: str
    text: str
    now: str


class TokenTexts:
    """Text of tokens, as they stand in a sentence."""

    def __init__(self, tokenizer_json: bytes):
        """From the bytes of tokenizer.json.

        Raises:
          DataError: it is broken.
        """
        tokenizer = LoadedTokenizer.from_json(tokenizer_json)
        self._spelt = tokenizer.token_bytes
        self._starts_word = tokenizer.is_word_start
        # WordPiece marks what goes on with it ("##ing").
        prefix = json.loads(tokenizer_json)["model"].get("continuing_subword_prefix")
        self._prefix = (prefix or "").encode()
        self._special = frozenset(tokenizer.all_special_ids)

    def text(self, ids: list[int]) -> str:
        r"""Text of neighbouring tokens; bytes that are no whole character become \xe2.

        Line ends become "↵" and other control characters \x1b, so that no text can command a
        terminal.
        """
        joined = b"".join(self._bytes(i) for i in ids).decode("utf-8", "backslashreplace")
        return "".join(map(_visible, joined))

    def _bytes(self, token: int) -> bytes:
        if not 0 <= token < len(self._spelt):
            return f"<id {token}>".encode()
        spelt = self._spelt[token]
        if token in self._special:
            return spelt
        spelt = spelt.removeprefix(self._prefix).replace("▁".encode(), b" ")
        # Byte-level tokens hold their spaces; of others the space before a word is put back.
        has_space = spelt.decode(errors="replace")[:1].isspace()
        return b" " + spelt if self._starts_word[token] and not has_space else spelt


def _visible(character: str) -> str:
    if character == "\n":
        return "↵"
    # Cc: terminal controls. Cf, such as U+202E, turns the writing direction; joiners are text.
    hidden = unicodedata.category(character) in ("Cc", "Cf") and character not in "\u200c\u200d"
    return character.encode("unicode_escape").decode() if hidden else character


def row_pieces(row: dict[str, np.ndarray], schema: Schema, texts: TokenTexts) -> list[Piece]:
    """Cuts one row into pieces, in the order of its places.

    Args:
      row: its columns [L] and [K], decoded.
      schema: its contract.
      texts: of the set's tokenizer.
    """
    now = row["input_ids"].astype(np.int64)
    was = now.copy()
    segment_ids = row["segment_ids"].tolist()
    special = set(schema.all_special_ids)
    kinds = [
        PADDING if segment == 0 else SPECIAL if token in special else TEXT
        for segment, token in zip(segment_ids, now.tolist(), strict=True)
    ]
    if schema.static_masking:
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
    pieces = []
    start = 0
    for place in range(1, len(kinds) + 1):
        if place < len(kinds) and kinds[start] in (TEXT, PADDING):
            alike = (segment_ids[place], kinds[place]) == (segment_ids[start], kinds[start])
            if alike:
                continue
        kind, part = kinds[start], slice(start, place)
        old, new = (
            ("", "") if kind == PADDING else (texts.text(ids[part].tolist()) for ids in (was, now))
        )
        pieces.append(Piece(segment_ids[start], start, place - start, kind, old, new))
        start = place
    return pieces
