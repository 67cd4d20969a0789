"""C4's rules (Raffel et al. 2020, section 2.2): documents lose lines, or are dropped."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from pipelines.corpus.english.characters import character_table
from pipelines.corpus.english.cutting import cut
from pipelines.corpus.english.line_loop import choose_lines, count_sentences
from pipelines.corpus.rules.rule import Family, Judged, Rule, check_numbers, paper
from pipelines.rows.text_bytes import slices, utf8_bytes

YesNo = Literal["yes", "no"]
_AT_ONCE = 1 << 18  # bytes
_WRAPPED = (
    "C4 takes a line for a paragraph and cuts those that end no sentence, so text whose lines are "
    "wrapped at a fixed width loses nearly all: give a line a paragraph, or --c4_line_ends=no"
)
_PHRASES = (
    "javascript,terms of use,privacy policy,cookie policy,uses cookies,use of cookies,use cookies"
)
_REASONS = ("c4:min_sentences", "c4:page_phrases")


@dataclass(frozen=True)
class C4(Family):
    """C4's rules for English (Raffel et al. 2020); --quality=c4 asks for all."""

    CAUSES = {
        "": _WRAPPED,
        "min_sentences": _WRAPPED,
        "page_phrases": "the text may be code, or of pages with templates: see --c4_page_phrases",
    }

    c4_line_ends: YesNo | None = paper("yes")
    """Take out lines that do not end in . ! ? or a quotation mark."""
    c4_min_line_words: int | None = paper(3)
    """Take out lines of fewer words, as white space separates them (3; the paper's first version
    has 5)."""
    c4_max_word_length: int | None = paper(1000)
    """Take out lines with a longer word, in characters; 0 for any (1,000)."""
    c4_line_phrases: str | None = paper(_PHRASES)
    """Take out lines with any of these phrases, whatever their case, with commas between
    (javascript,terms of use,privacy policy,cookie policy,uses cookies,use of cookies,use
    cookies)."""
    c4_notes: YesNo | None = paper("yes")
    """Take Wikipedia's notes out of lines: [1], [edit], [citation needed]."""
    c4_page_phrases: str | None = paper("lorem ipsum,{")
    """Drop documents with any of these in a line that is otherwise kept (lorem ipsum,{). They are
    looked for in turn with the phrases of lines, as C4's code does: a line with javascript is cut
    before { is looked for."""
    c4_min_sentences: int | None = paper(5)
    """Drop documents of which fewer sentences are left (5)."""

    def __post_init__(self) -> None:
        """Refuses numbers that cannot be meant."""
        check_numbers(self)

    def make_rules(self) -> Iterator[Rule]:
        """One rule that edits documents and drops those of which too little is left."""
        if asked := self.parameters():
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
