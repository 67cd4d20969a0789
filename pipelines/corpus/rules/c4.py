"""C4's rules (Raffel et al. 2020), which remove lines and drop documents.

Legend of the compiled loops: N bytes, D documents, L lines.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pyarrow as pa

from textmill.pipelines.corpus.english.tables import BREAK, MARK, SPACE, TERMINAL, character_table
from textmill.pipelines.corpus.english.tokenizer import cut
from textmill.pipelines.corpus.rules.rule import Rule, RuleGroup, RuleResult, check_numbers, paper
from textmill.pipelines.readers.documents import take_slices
from textmill.pipelines.rows.text_bytes import code_point, slices, utf8_bytes
from textmill.pipelines.runtime.compiled import entry, inner
from textmill.schemas.commands.values import join_list, spelled, spelled_list, take_values
from textmill.schemas.errors import FieldError, flag

_AT_ONCE = 1 << 18  # bytes of text judged together
_WRAPPED = (
    "C4 treats each line as a paragraph and removes lines that do not end a sentence, which is "
    "nearly all of text wrapped at a fixed width: put each paragraph on one line, or use "
    f"{flag('c4_line_ends', 'no')}"
)
_SHORT = f"the documents may be short: see {flag('c4_min_sentences')}; or {_WRAPPED}"
_PHRASES = (
    "javascript",
    "terms of use",
    "privacy policy",
    "cookie policy",
    "uses cookies",
    "use of cookies",
    "use cookies",
)
_PAGE_PHRASES = ("lorem ipsum", "{")
_NOTES = (b"[edit]", b"[citation needed]")
_REASONS = ("c4:min_sentences", "c4:page_phrases")


def _parse_yes_no(text: str) -> bool:
    if text not in ("yes", "no"):
        raise FieldError("", text, "choose one of yes, no")
    return text == "yes"


def _write_yes_no(value: bool) -> str:
    return "yes" if value else "no"


_YES_NO = spelled(bool, "yes|no", none="None", parse=_parse_yes_no, write=_write_yes_no)
_PHRASE_LIST = spelled_list(str, "PHRASE,...", none="None")


@dataclass(frozen=True)
class C4(RuleGroup):
    """C4's rules for English (Raffel et al. 2020); --quality=c4 turns all of them on."""

    CAUSES = {
        "": _WRAPPED,
        "min_sentences": _SHORT,
        "page_phrases": "the text may be code, or pages with templates: see "
        f"{flag('c4_page_phrases')}",
    }

    c4_line_ends: Annotated[bool | None, _YES_NO] = paper(True, "yes")
    """Remove lines that do not end in . ! ? or a quotation mark."""
    c4_min_line_words: int | None = paper(3)
    """Remove lines with fewer words, separated by white space: 3 in FineWeb and in early versions
    of the paper, 5 in C4's code and in the last version."""
    c4_max_word_length: int | None = paper(1000)
    """Remove lines with a longer word, in characters; 0 for no limit."""
    c4_line_phrases: Annotated[tuple[str, ...] | None, _PHRASE_LIST] = paper(
        _PHRASES, join_list(_PHRASES)
    )
    """Remove lines with any of these phrases, separated by commas. The case of A to Z does not
    matter."""
    c4_notes: Annotated[bool | None, _YES_NO] = paper(True, "yes")
    """Remove Wikipedia's notes from lines: [1], [edit], [citation needed]."""
    c4_page_phrases: Annotated[tuple[str, ...] | None, _PHRASE_LIST] = paper(
        _PAGE_PHRASES, join_list(_PAGE_PHRASES)
    )
    """Drop documents with any of these phrases in a kept line. They alternate with the phrases
    of --c4_line_phrases, as in C4's code: a line with javascript is removed before { is searched
    for."""
    c4_min_sentences: int | None = paper(5)
    """Drop documents with fewer sentences after lines are removed: 5 in FineWeb and in early
    versions of the paper, 3 in C4's code and in the last version."""

    def __post_init__(self) -> None:
        """Rejects impossible numbers."""
        take_values(self)
        check_numbers(self)

    def make_rules(self) -> Iterator[Rule]:
        """One rule, which removes lines and drops documents with too little left."""
        if flags := self.settings():
            yield Rule(_REASONS, lambda text: judge(text, flags), edits="c4")


def judge(text: pa.LargeStringArray, flags: dict[str, Any]) -> RuleResult:
    """Removes lines, then drops documents, by the flags that are set."""
    parts = [_judge_slice(part, flags) for part in slices(text, _AT_ONCE)]
    if not parts:
        return RuleResult(np.zeros(0, np.int64), text)
    reasons, texts = zip(*parts, strict=True)
    return RuleResult(np.concatenate(reasons), pa.concat_arrays(texts))


def _judge_slice(
    text: pa.LargeStringArray, flags: dict[str, Any]
) -> tuple[np.ndarray, pa.LargeStringArray]:
    data, bounds = utf8_bytes(text)
    table = character_table()
    limits = [flags.get("c4_min_line_words", 0), flags.get("c4_max_word_length", 0)]
    limits += [bool(flags.get(name)) for name in ("c4_notes", "c4_line_ends")]
    out, spans, offsets, is_dropped = choose_lines(
        data,
        bounds,
        table,
        np.array(limits, np.int64),
        _phrases(flags.get("c4_page_phrases", ())),
        _phrases(flags.get("c4_line_phrases", ())),
    )
    reasons = np.where(is_dropped, 2, 0)
    least = flags.get("c4_min_sentences", 0)
    if least:
        words, first_words = cut(out, spans, spaces=True)
        of_line = count_sentences(out, words, first_words, table)
        sentences = np.diff(np.concatenate([[0], np.cumsum(of_line)])[offsets])
        reasons = np.where(~is_dropped & (sentences < least), 1, reasons)
    return reasons, _join_lines(out, spans, offsets)


def _phrases(texts: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Phrases for `choose_lines`: their bytes, where they begin, and the set of first bytes."""
    phrases = [phrase.encode().lower() for phrase in texts if phrase]
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
    return take_slices(out, starts, stops).cast(pa.large_string())


# ---- compiled ----


@inner
def _line(data, start, stop, table):
    """End of the line that begins at `start`, and begin of the next."""
    i = start
    while i < stop:
        point, size = code_point(data, i)
        if table[point] & BREAK:
            after = i + size
            if point == 13 and after < stop and data[after] == 10:
                after += 1
            return i, after
        i += size
    return stop, stop


@inner
def _words(data, start, stop, table):
    """Start and stop of a stripped line, its number of words, and characters of the longest."""
    first, last, words, longest, length, i = stop, start, 0, 0, 0, start
    while i < stop:
        point, size = code_point(data, i)
        if table[point] & SPACE:
            length = 0
        else:
            words += length == 0
            length += 1
            longest = max(longest, length)
            first, last = min(first, i), i + size
        i += size
    return first, last, words, longest


@inner
def _holds_at(data, i, stop, phrase):
    """Whether the text at `i` begins with a lower-case phrase, ignoring the case of A to Z."""
    if i + phrase.size > stop:
        return False
    for j in range(phrase.size):
        byte = data[i + j]
        if 0x41 <= byte <= 0x5A:
            byte |= 0x20
        if byte != phrase[j]:
            return False
    return True


@inner
def _holds_any(data, start, stop, phrases, bounds, firsts):
    for i in range(start, stop):
        if firsts[data[i]]:
            for n in range(bounds.size - 1):
                if _holds_at(data, i, stop, phrases[bounds[n] : bounds[n + 1]]):
                    return True
    return False


@inner
def _first_held(data, start, stop, phrases, bounds, firsts):
    """Number of the first phrase that the text contains; the number of phrases if none."""
    for n in range(bounds.size - 1):
        phrase = phrases[bounds[n] : bounds[n + 1]]
        for i in range(start, stop):
            if firsts[data[i]] and _holds_at(data, i, stop, phrase):
                return n
    return bounds.size - 1


@inner
def _note(data, i, stop):
    """Bytes of the note that begins at `i`: [3], [], [edit] or [citation needed]; 0 if none."""
    j = i + 1
    while j < stop and 0x30 <= data[j] <= 0x39:
        j += 1
    if j < stop and data[j] == 0x5D:
        return j + 1 - i
    for note in _NOTES:
        size = len(note)
        if i + size <= stop:
            same = True
            for k in range(size):
                same = same and data[i + k] == note[k]
            if same:
                return size
    return 0


@inner
def _copy(data, start, stop, notes, out, into):
    """Copies a line without notes; returns where the copy ends."""
    i = start
    while i < stop:
        size = _note(data, i, stop) if notes and data[i] == 0x5B else 0
        if size:
            i += size
        else:
            out[into] = data[i]
            into, i = into + 1, i + 1
    return into


@inner
def _ends_a_sentence(out, start, stop):
    if start == stop:
        return False
    last = out[stop - 1]
    if last == 0x2E:
        return not (stop - start >= 3 and out[stop - 2] == 0x2E and out[stop - 3] == 0x2E)
    return last == 0x3F or last == 0x21 or last == 0x22 or last == 0x27


@entry()
def choose_lines(data, bounds, table, limits, pages, lines):
    """Copies the lines to keep.

    Args:
      data: uint8[N], UTF-8.
      bounds: int64[D + 1], where documents begin.
      table: uint32[code points], see `character_table`.
      limits: int64[4]: minimum words of a line; maximum characters of a word, 0 for no limit;
        whether to remove notes; whether a line must end a sentence.
      pages: phrases that drop a document: uint8[bytes]; int64[P + 1], where they begin; bool[256],
        their first bytes in either case.
      lines: phrases that remove a line, like `pages`. The two lists alternate: first of `pages`,
        first of `lines`, second of `pages`, and so on.

    Returns:
      uint8[bytes], the lines, with a newline after each; int64[2, L], where they start and stop;
      int64[D + 1], the first line of each document; bool[D], whether a phrase drops a document.
    """
    number = bounds.size - 1
    for i in range(data.size):
        number += data[i] < 0x20 or data[i] >= 0xC2
    out = np.empty(data.size + bounds.size, np.uint8)
    spans, offsets = np.empty((2, number), np.int64), np.zeros(bounds.size, np.int64)
    is_dropped = np.zeros(bounds.size - 1, np.bool_)
    into, count = 0, 0
    for document in range(bounds.size - 1):
        i, stop = bounds[document], bounds[document + 1]
        while i < stop and not is_dropped[document]:
            end, after = _line(data, i, stop, table)
            first, last, words, longest = _words(data, i, end, table)
            i = after
            if limits[1] and longest > limits[1] or words < limits[0] or not words:
                continue
            written = _copy(data, first, last, limits[2] != 0, out, into)
            if limits[3] and not _ends_a_sentence(out, into, written):
                continue
            has_line = _holds_any(out, into, written, *lines)
            if _holds_any(out, into, written, *pages):
                page = _first_held(out, into, written, *pages)
                is_dropped[document] = not has_line or page <= _first_held(
                    out, into, written, *lines
                )
            if not has_line and not is_dropped[document]:
                is_first = count == offsets[document]  # may have begun with a note and a space
                begin = _words(out, into, written, table)[0] if is_first else into
                spans[0, count], spans[1, count] = begin, written
                out[written] = 10
                into, count = written + 1, count + 1
        offsets[document + 1] = count
    return out, spans[:, :count], offsets, is_dropped


@entry()
def count_sentences(data, words, offsets, table):
    """Counts the sentences of pieces of text; all punctuation at the end belongs to a sentence.

    Args:
      data: uint8[N], UTF-8.
      words: int64[2, W], where words and white space start and stop.
      offsets: int64[P + 1], the first word of each piece.
      table: uint32[code points], see `character_table`.

    Returns:
      int64[P], number of sentences of each piece.
    """
    counts = np.zeros(offsets.size - 1, np.int64)
    for piece in range(offsets.size - 1):
        ends = False
        for word in range(offsets[piece], offsets[piece + 1]):
            i, stop, is_mark, characters, kind = (
                words[0, word],
                words[1, word],
                True,
                0,
                np.int64(0),
            )
            while i < stop:
                point, size = code_point(data, i)
                kind = np.int64(table[point])
                is_mark = is_mark and kind & MARK != 0
                i, characters = i + size, characters + 1
            if characters == 1 and kind & TERMINAL:
                ends = True
            elif ends and not is_mark:
                counts[piece] += 1
                ends = False
        counts[piece] += offsets[piece + 1] > offsets[piece]
    return counts
