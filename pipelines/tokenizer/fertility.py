"""Fertility: tokens per word, bytes per token and more, for each group of a tokenizer's text.

A group is an --input, a directory or a value of --group_field. It is measured on a sample: the
documents with the smallest hashes, exact duplicates once, until there are enough bytes. A sample
therefore depends only on the documents, and samples of parts merge to the sample of the whole.

As in the literature (Rust et al. 2021), white space separates words, not the splitting pattern. In
scripts without spaces such words are clauses, and characters per token are more meaningful.
"""

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np
import pyarrow as pa

from textmill.pipelines.encoding.reference import Tokenizer, failures_as_data_errors
from textmill.pipelines.readers.sources import Block
from textmill.pipelines.readers.stored import Part
from textmill.pipelines.rows.routing import content_digests
from textmill.pipelines.rows.text_bytes import character_begins, slices, utf8_bytes, word_spans
from textmill.schemas.errors import UsageError, flag
from textmill.schemas.format.tokenizer_report import Fertility

ALL = "all"
MOST_GROUPS = 1000
GROUP_BYTES = 1 << 19  # of a group's sample; metrics are then accurate to about half a percent
ALL_BYTES = 1 << 25  # of all samples; more than 64 groups get smaller samples
LONGEST_BYTES = 1 << 16  # the most bytes of a document that are sampled
_LONGEST_NAME = 100
_AT_ONCE = 1 << 20  # bytes of text; Encodings with offsets take about a hundred times as many


# ---- groups of files ----


@dataclass(frozen=True)
class FileGroups:
    """How files form groups without --group_field.

    Attributes:
      by: "input", the --input that matches the file; "folder", its directory below `root`; or
        "all", one group.
      root: the common prefix of all inputs or paths, up to a slash; names omit it.
    """

    by: str = ALL
    root: str = ""

    def name(self, part: Part) -> str:
        """The group of a part of a file."""
        if self.by == "input":
            return part.input.removeprefix(self.root) or part.input
        return _folder(part, self.root) if self.by == "folder" else ALL

    def split(self, block: Block) -> list[tuple[str, Block]]:
        """Splits a block into blocks of consecutive parts of one group: (group, block)."""
        return [
            (name, Block(block.index, tuple(parts), block.split))
            for name, parts in groupby(block.parts, self.name)
        ]


def file_groups(blocks: Sequence[Block]) -> FileGroups:
    """Each --input is a group; with only one, each directory below the common one is a group.

    More than MOST_GROUPS would be unreadable: all files are one group then.
    """
    parts = [part for block in blocks for part in block.parts]
    inputs = {part.input for part in parts}
    if 1 < len(inputs) <= MOST_GROUPS:
        return FileGroups("input", _shared_folder(inputs))
    root = _shared_folder({part.path for part in parts})
    if 1 < len({_folder(part, root) for part in parts}) <= MOST_GROUPS:
        return FileGroups("folder", root)
    return FileGroups()


def _folder(part: Part, root: str) -> str:
    """The group of a file below `corpus/`: `no` for corpus/no/a.txt, `.` for corpus/a.txt."""
    first, slash, _ = part.path.removeprefix(root).partition("/")
    return first if slash else "."


def _shared_folder(paths: Iterable[str]) -> str:
    prefix = os.path.commonprefix(list(paths))
    return prefix[: prefix.rfind("/") + 1]


# ---- samples ----


@dataclass
class Group:
    """A group and its sample.

    Attributes:
      documents: number of documents in the group.
      text_bytes: UTF-8 bytes of their text.
      texts: the sample: hash of a document to the first LONGEST_BYTES of its text, UTF-8.
      limit: the largest hash in the sample once it is full.
    """

    documents: int = 0
    text_bytes: int = 0
    texts: dict[int, bytes] = field(default_factory=dict)
    limit: int = (1 << 64) - 1


class GroupSample:
    """The samples of all groups."""

    def __init__(self) -> None:
        """Starts without groups."""
        self.groups: dict[str, Group] = {}

    def add(self, text: pa.LargeStringArray, names: pa.LargeStringArray | str) -> None:
        """Adds documents.

        Args:
          text: the documents.
          names: the name of each document's group, or of the group of all.

        Raises:
          UsageError: there are too many groups.
        """
        if not len(text):
            return
        hashes = content_digests(text).view("<u8")[:, 0]
        lengths = np.diff(utf8_bytes(text)[1])
        for name, places in _by_group(names, len(text)):
            limit = self.groups.get(name, Group()).limit
            near = places[hashes[places] <= np.uint64(limit)]
            unique, firsts = np.unique(hashes[near], return_index=True)
            # Cutting before a character removes up to three bytes more.
            sizes = np.minimum(lengths[near[firsts]], LONGEST_BYTES - 3)
            few = np.cumsum(sizes) - sizes < self._most()
            taken = text.take(pa.array(near[firsts][few])).cast(pa.large_binary()).to_pylist()
            texts = dict(zip(unique[few].tolist(), map(_begin, taken), strict=True))
            self._grow(name, len(places), int(lengths[places].sum()), texts)

    def merge(self, data: bytes) -> None:
        """Adds the result of another sample's `to_bytes`."""
        for name, (documents, text_bytes, texts) in json.loads(data).items():
            sample = {int(digest): text.encode() for digest, text in texts.items()}
            self._grow(name, documents, text_bytes, sample)

    def to_bytes(self) -> bytes:
        """Serializes all groups; equal samples give equal bytes."""
        for group in self.groups.values():
            self._shrink(group)
        values = {
            name: (
                group.documents,
                group.text_bytes,
                {digest: text.decode() for digest, text in group.texts.items()},
            )
            for name, group in sorted(self.groups.items())
        }
        return json.dumps(values, ensure_ascii=False).encode()

    def _grow(self, name: str, documents: int, text_bytes: int, texts: dict[int, bytes]) -> None:
        if name not in self.groups and len(self.groups) == MOST_GROUPS:
            first, last = min(self.groups), max(self.groups)
            raise UsageError(
                f"{flag('group_field')} has more than {MOST_GROUPS:,} values, such as {first!r} "
                f"and {last!r}: choose a field with few values, such as the language"
            )
        group = self.groups.setdefault(name, Group())
        group.documents += documents
        group.text_bytes += text_bytes
        if texts:
            group.texts |= texts
            self._shrink(group)

    def _shrink(self, group: Group) -> None:
        """Keeps the smallest hashes, just enough for `_most` bytes."""
        kept, total, most = {}, 0, self._most()
        for digest in sorted(group.texts):
            if total >= most:
                group.limit = max(kept)
                break
            kept[digest] = group.texts[digest]
            total += len(kept[digest])
        group.texts = kept

    def _most(self) -> int:
        """Bytes of a group's sample; halved from 65 groups on, and whenever groups double."""
        return min(GROUP_BYTES, ALL_BYTES >> max(len(self.groups) - 1, 0).bit_length())


def _by_group(names: pa.LargeStringArray | str, count: int) -> Iterator[tuple[str, np.ndarray]]:
    """Yields the name of each group and the indices of its documents, int64."""
    if isinstance(names, str):
        yield names, np.arange(count)
        return
    encoded = names.dictionary_encode()
    codes = encoded.indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    places = np.split(order, np.cumsum(np.bincount(codes))[:-1])
    for name, of_group in zip(encoded.dictionary.to_pylist(), places, strict=False):
        yield name[:_LONGEST_NAME], of_group


def _begin(text: bytes) -> bytes:
    """The first LONGEST_BYTES of a document, cut to whole characters."""
    start = text[:LONGEST_BYTES]
    return start if len(text) == len(start) else start.decode(errors="ignore").encode()


def add_samples(parts: Iterable[bytes]) -> bytes:
    """Merges the samples of parts of a text."""
    total = GroupSample()
    for part in parts:
        total.merge(part)
    return total.to_bytes()


# ---- metrics ----


def measure_groups(sample: bytes, tokenizer: Tokenizer) -> tuple[Fertility, ...]:
    """Measures a tokenizer on the sample of each group, see `GroupSample.to_bytes`."""
    groups = GroupSample()
    groups.merge(sample)
    return measure_fertility(groups, tokenizer)


def measure_fertility(sample: GroupSample, tokenizer: Tokenizer) -> tuple[Fertility, ...]:
    """Measures each group's sample; groups are sorted by their bytes, largest first."""
    by_size = sorted(sample.groups.items(), key=lambda item: (-item[1].text_bytes, item[0]))
    return tuple(_measure(name, group, tokenizer) for name, group in by_size)


def _measure(name: str, group: Group, tokenizer: Tokenizer) -> Fertility:
    texts = [group.texts[digest].decode() for digest in sorted(group.texts)]
    tokens, words, long_words = 0, 0, 0
    for text in slices(pa.array(texts, pa.large_string()), _AT_ONCE):
        some, of_words = count_tokens(text, tokenizer)
        tokens += some
        words += len(of_words)
        long_words += int((of_words > 3).sum())
    return Fertility(
        group=name,
        documents=group.documents,
        bytes=group.text_bytes,
        sampled_documents=len(texts),
        tokens_per_word=tokens / max(words, 1),
        bytes_per_token=sum(map(len, group.texts.values())) / max(tokens, 1),
        characters_per_token=sum(map(len, texts)) / max(tokens, 1),
        words_of_over_3_tokens=long_words / max(words, 1),
    )


def count_tokens(text: pa.LargeStringArray, tokenizer: Tokenizer) -> tuple[int, np.ndarray]:
    """The number of tokens of the documents, and of each of their words.

    A token belongs to the word of its first character that is not white space, and to none if it is
    white space only: "a  lot" as `a`, two spaces and ` lot` gives 3, [1, 1].

    Args:
      text: documents, UTF-8; no nulls.
      tokenizer: the tokenizer to measure; special tokens are not added.

    Raises:
      DataError: the tokenizer failed.
    """
    with failures_as_data_errors(
        "the new tokenizer failed on its own text", f"correct {flag('pattern')}"
    ):
        encodings = tokenizer.encode_batch(text.to_pylist(), add_special_tokens=False)
    data, bounds = utf8_bytes(text)
    characters = character_begins(data)
    places = [np.zeros((0, 2), np.int64)]
    for first, encoding in zip(np.searchsorted(characters, bounds), encodings, strict=False):
        places.append(first + np.array(encoding.offsets, np.int64).reshape(-1, 2))
    starts, stops = np.append(characters, len(data))[np.concatenate(places)].T
    word_starts, word_stops = word_spans(data, bounds)
    word = np.searchsorted(word_stops, starts, side="right")
    word = word[np.append(word_starts, len(data))[word] < stops]
    return len(starts), np.bincount(word, minlength=len(word_starts))
