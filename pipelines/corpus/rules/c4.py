"""C4's rules (Raffel et al. 2020), which remove lines and drop documents."""

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
_AT_ONCE = 1 << 18  # bytes of text judged together
_WRAPPED = (
    "C4 treats each line as a paragraph and removes lines that do not end a sentence, which is "
    "nearly all of text wrapped at a fixed width: put each paragraph on one line, or use "
    "--c4_line_ends=no"
)
_SHORT = f"the documents may be short: see --c4_min_sentences; or {_WRAPPED}"
_PHRASES = (
    "javascript,terms of use,privacy policy,cookie policy,uses cookies,use of cookies,use cookies"
)
_REASONS = ("c4:min_sentences", "c4:page_phrases")


@dataclass(frozen=True)
class C4(Family):
    """C4's rules for English (Raffel et al. 2020); --quality=c4 turns all of them on."""

    CAUSES = {
        "": _WRAPPED,
        "min_sentences": _SHORT,
        "page_phrases": "the text may be code, or pages with templates: see --c4_page_phrases",
    }

    c4_line_ends: YesNo | None = paper("yes")
    """Remove lines that do not end in . ! ? or a quotation mark."""
    c4_min_line_words: int | None = paper(3)
    """Remove lines with fewer words between white space. The paper has 5, C4's later code 3."""
    c4_max_word_length: int | None = paper(1000)
    """Remove lines with a longer word, in characters; 0 for no limit."""
    c4_line_phrases: str | None = paper(_PHRASES)
    """Remove lines with any of these phrases, separated by commas. Case does not matter."""
    c4_notes: YesNo | None = paper("yes")
    """Remove Wikipedia's notes from lines: [1], [edit], [citation needed]."""
    c4_page_phrases: str | None = paper("lorem ipsum,{")
    """Drop documents with any of these phrases in a kept line. They alternate with the phrases
    of --c4_line_phrases, as in C4's code: a line with javascript is removed before { is searched
    for."""
    c4_min_sentences: int | None = paper(5)
    """Drop documents with fewer sentences after lines are removed."""

    def __post_init__(self) -> None:
        """Rejects impossible numbers."""
        check_numbers(self)

    def make_rules(self) -> Iterator[Rule]:
        """One rule, which removes lines and drops documents with too little left."""
        if flags := self.parameters():
            yield Rule(_REASONS, lambda text: judge(text, flags), edits="c4")


def judge(text: pa.LargeStringArray, flags: dict[str, Any]) -> Judged:
    """Removes lines, then drops documents.

    Args:
      text: large_string [n], the documents.
      flags: value of each flag, by name; rules without a flag are off.
    """
    parts = [_judge_slice(part, flags) for part in slices(text, _AT_ONCE)]
    if not parts:
        return Judged(np.zeros(0, np.int64), text)
    reasons, texts = zip(*parts, strict=True)
    return Judged(np.concatenate(reasons), pa.concat_arrays(texts))


def _judge_slice(
    text: pa.LargeStringArray, flags: dict[str, Any]
) -> tuple[np.ndarray, pa.LargeStringArray]:
    data, bounds = utf8_bytes(text)
    table = character_table()
    limits = [flags.get("c4_min_line_words", 0), flags.get("c4_max_word_length", 0)]
    limits += [flags.get(name) == "yes" for name in ("c4_notes", "c4_line_ends")]
    out, spans, offsets, is_dropped = choose_lines(
        data,
        bounds,
        table,
        np.array(limits, np.int64),
        _phrases(flags.get("c4_page_phrases", "")),
        _phrases(flags.get("c4_line_phrases", "")),
    )
    reasons = np.where(is_dropped, 2, 0)
    least = flags.get("c4_min_sentences", 0)
    if least:
        words, first_words = cut(out, spans, spaces=True)
        of_line = count_sentences(out, words, first_words, table)
        sentences = np.diff(np.concatenate([[0], np.cumsum(of_line)])[offsets])
        reasons = np.where(~is_dropped & (sentences < least), 1, reasons)
    return reasons, _join_lines(out, spans, offsets)


def _phrases(flag: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Phrases for `choose_lines`: their bytes, where they begin, and the set of first bytes."""
    phrases = [phrase.lower().encode() for phrase in flag.split(",") if phrase]
    firsts = np.zeros(256, np.bool_)
    firsts[[byte for phrase in phrases for byte in (phrase[:1] + phrase[:1].upper())]] = True
    bounds = np.concatenate([[0], np.cumsum([len(phrase) for phrase in phrases])]).astype(np.int64)
    return np.frombuffer(b"".join(phrases) or b"\0", np.uint8), bounds, firsts


def _join_lines(out: np.ndarray, spans: np.ndarray, offsets: np.ndarray) -> pa.LargeStringArray:
    """Documents of their lines, separated by newlines, without copying the lines apart."""
    ends = np.concatenate([[0], spans[1] + 1])[offsets]
    starts, stops = ends[:-1].copy(), np.maximum(ends[1:] - 1, ends[:-1])
    has_lines = np.diff(offsets) > 0
    starts[has_lines] = spans[0][offsets[:-1][has_lines]]
    tiles = np.append(np.stack([starts, stops], axis=1).ravel(), ends[-1])
    both = pa.LargeStringArray.from_buffers(
        len(tiles) - 1, pa.py_buffer(tiles.astype(np.int64)), pa.py_buffer(out)
    )
    return both.take(pa.array(np.arange(0, len(both), 2)))
