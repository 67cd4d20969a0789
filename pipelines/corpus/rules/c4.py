"""C4's rules (Raffel et al. 2020, section 2.2): documents lose lines, or are dropped."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa

from pipelines.corpus.english.characters import character_table
from pipelines.corpus.english.cutting import cut
from pipelines.corpus.english.line_loop import choose_lines, count_sentences
from pipelines.corpus.rules.presets import asked_for, check_numbers
from pipelines.corpus.rules.rule import Judged, Rule
from pipelines.rows.text_bytes import slices, utf8_bytes

if TYPE_CHECKING:
    from pipelines.corpus.filters import Filters

YesNo = Literal["yes", "no"]
_AT_ONCE = 1 << 18  # bytes
_REASONS = ("c4:min_sentences", "c4:page_phrases")


@dataclass(frozen=True)
class C4Flags:
    """Each rule of C4's by itself; --quality=c4 asks for all."""

    c4_line_ends: YesNo | None = None
    """Take out lines that do not end in . ! ? or a quotation mark."""
    c4_min_line_words: int | None = None
    """Take out lines of fewer words, as white space separates them (3; the paper's first version
    has 5)."""
    c4_max_word_length: int | None = None
    """Take out lines with a longer word, in characters; 0 for any (1,000)."""
    c4_line_phrases: str | None = None
    """Take out lines with any of these phrases, whatever their case, with commas between
    (javascript,terms of use,privacy policy,cookie policy,uses cookies,use of cookies,use
    cookies)."""
    c4_notes: YesNo | None = None
    """Take Wikipedia's notes out of lines: [1], [edit], [citation needed]."""
    c4_page_phrases: str | None = None
    """Drop documents with any of these in a line that is otherwise kept (lorem ipsum,{)."""
    c4_min_sentences: int | None = None
    """Drop documents of which fewer sentences are left (5)."""

    def __post_init__(self) -> None:
        """Refuses numbers that cannot be meant."""
        check_numbers(self)


C4 = C4Flags(
    c4_line_ends="yes",
    c4_min_line_words=3,
    c4_max_word_length=1000,
    c4_line_phrases="javascript,terms of use,privacy policy,cookie policy,uses cookies,"
    "use of cookies,use cookies",
    c4_notes="yes",
    c4_page_phrases="lorem ipsum,{",
    c4_min_sentences=5,
)


def make_rules(filters: "Filters", texts: int) -> Iterator[Rule]:
    """One rule that edits documents and drops those of which too little is left."""
    asked = asked_for(filters.c4, C4, "c4" in filters.presets)
    if asked:
        yield Rule(_REASONS, lambda text: judge(text, asked), edits="c4")


def judge(text: pa.LargeStringArray, asked: dict[str, Any]) -> Judged:
    """Takes out lines; then drops documents.

    Args:
      text: documents.
      asked: values by the names of flags; a rule without one is not asked for.
    """
    parts = [_judge_slice(part, asked) for part in slices(text, _AT_ONCE)]
    if not parts:
        return Judged(np.zeros(0, np.int64), text)
    reasons, texts = zip(*parts, strict=True)
    return Judged(np.concatenate(reasons), pa.concat_arrays(texts))


def _judge_slice(
    text: pa.LargeStringArray, asked: dict[str, Any]
) -> tuple[np.ndarray, pa.LargeStringArray]:
    data, bounds = utf8_bytes(text)
    table = character_table()
    limits = [asked.get("c4_min_line_words", 0), asked.get("c4_max_word_length", 0)]
    limits += [asked.get(name) == "yes" for name in ("c4_notes", "c4_line_ends")]
    out, spans, offsets, is_dropped = choose_lines(
        data,
        bounds,
        table,
        np.array(limits, np.int64),
        _phrases(asked.get("c4_page_phrases", "")),
        _phrases(asked.get("c4_line_phrases", "")),
    )
    reasons = np.where(is_dropped, 2, 0)
    least = asked.get("c4_min_sentences", 0)
    if least:
        words, first_words = cut(out, spans, spaces=True)
        of_line = count_sentences(out, words, first_words, table)
        sentences = np.diff(np.concatenate([[0], np.cumsum(of_line)])[offsets])
        reasons = np.where(~is_dropped & (sentences < least), 1, reasons)
    return reasons, _join_lines(out, spans, offsets)


def _phrases(given: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Phrases as `choose_lines` takes them: bytes, where they begin, and their first bytes."""
    phrases = [phrase.lower().encode() for phrase in given.split(",") if phrase]
    firsts = np.zeros(256, np.bool_)
    firsts[[byte for phrase in phrases for byte in (phrase[:1] + phrase[:1].upper())]] = True
    bounds = np.concatenate([[0], np.cumsum([len(phrase) for phrase in phrases])]).astype(np.int64)
    return np.frombuffer(b"".join(phrases) or b"\0", np.uint8), bounds, firsts


def _join_lines(out: np.ndarray, spans: np.ndarray, offsets: np.ndarray) -> pa.LargeStringArray:
    """Documents of their lines, with a newline between: the bytes lie there in this order."""
    ends = np.concatenate([[0], spans[1] + 1])[offsets]
    starts, stops = ends[:-1].copy(), np.maximum(ends[1:] - 1, ends[:-1])
    has_lines = np.diff(offsets) > 0
    starts[has_lines] = spans[0][offsets[:-1][has_lines]]
    tiles = np.append(np.stack([starts, stops], axis=1).ravel(), ends[-1])
    both = pa.LargeStringArray.from_buffers(
        len(tiles) - 1, pa.py_buffer(tiles.astype(np.int64)), pa.py_buffer(out)
    )
    return both.take(pa.array(np.arange(0, len(both), 2)))
