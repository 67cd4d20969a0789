"""A sample of each group's documents, on which its fertility is measured. Pure: numpy and pyarrow.

It holds the documents with the smallest hashes, repeats once, until they have enough bytes. So it
depends on nothing but the documents, and samples of parts of the text add up to that of the whole.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from pipelines.rows.routing import content_digests
from pipelines.rows.text_bytes import utf8_bytes
from pipelines.train.groups import MOST_GROUPS
from schemas.errors import UsageError

GROUP_BYTES = 1 << 19  # of a group's sample; its figures are then within about half a percent
ALL_BYTES = 1 << 25  # of all groups together: more than 64 get smaller samples
LONGEST_BYTES = 1 << 16  # of a document that are sampled
_LONGEST_NAME = 100
_SCHEMA = pa.schema(
    [
        ("group", pa.string()),
        ("documents", pa.int64()),
        ("bytes", pa.int64()),
        ("hashes", pa.list_(pa.uint64())),
        ("texts", pa.list_(pa.large_binary())),
    ]
)


@dataclass
class Group:
    """What is known of a group.

    Attributes:
      documents: how many it has.
      text_bytes: of their text.
      texts: the sample: hash of a document to the first LONGEST_BYTES of its text, UTF-8.
      limit: hashes from here on are not in the sample; None while it is not full.
    """

    documents: int = 0
    text_bytes: int = 0
    texts: dict[int, bytes] = field(default_factory=dict)
    limit: int | None = None

    def shrink(self, most: int) -> None:
        """Leaves the smallest hashes, as many as it takes to have `most` bytes."""
        kept, total = {}, 0
        for digest in sorted(self.texts):
            if total >= most:
                break
            kept[digest] = self.texts[digest]
            total += len(kept[digest])
        self.texts = kept
        if total >= most:
            self.limit = max(kept)


class GroupSample:
    """Samples that grow, by the names of groups."""

    def __init__(self) -> None:
        """Starts without groups."""
        self.groups: dict[str, Group] = {}

    def add(self, text: pa.LargeStringArray, names: pa.LargeStringArray | str) -> None:
        """Adds documents.

        Args:
          text: of each.
          names: of the group of each, or of all.

        Raises:
          UsageError: there are too many groups.
        """
        if not len(text):
            return
        hashes = content_digests(text).view("<u8")[:, 0]
        lengths = np.diff(utf8_bytes(text)[1])
        if isinstance(names, str):
            self._add(names, text, hashes, lengths, np.arange(len(text)))
            return
        encoded = names.dictionary_encode()
        codes = encoded.indices.to_numpy()
        order, counts = np.argsort(codes, kind="stable"), np.bincount(codes)
        places = np.split(order, np.cumsum(counts)[:-1])
        for name, of_group in zip(encoded.dictionary.to_pylist(), places, strict=True):
            self._add(name[:_LONGEST_NAME], text, hashes, lengths, of_group)

    def merge(self, data: bytes) -> None:
        """Adds what `to_bytes` gave of other documents."""
        with pa.ipc.open_stream(data) as reader:
            rows = reader.read_all().to_pylist()
        for row in rows:
            texts = dict(zip(row["hashes"], row["texts"], strict=True))
            self._grow(row["group"], row["documents"], row["bytes"], texts)

    def to_bytes(self) -> bytes:
        """All groups, for the way between workers; equal samples give equal bytes."""
        rows = [
            {
                "group": name,
                "documents": group.documents,
                "bytes": group.text_bytes,
                "hashes": sorted(group.texts),
                "texts": [group.texts[digest] for digest in sorted(group.texts)],
            }
            for name, group in sorted(self._shrunk().items())
        ]
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, _SCHEMA) as writer:
            writer.write_table(pa.Table.from_pylist(rows, _SCHEMA))
        return sink.getvalue().to_pybytes()

    def _add(
        self,
        name: str,
        text: pa.LargeStringArray,
        hashes: np.ndarray,
        lengths: np.ndarray,
        places: np.ndarray,
    ) -> None:
        """Adds the documents of one group, which lie at `places`."""
        small, limit = places, self.groups.get(name, Group()).limit
        if limit is not None:
            small = places[hashes[places] < np.uint64(limit)]
        text_bytes = int(lengths[places].sum())
        if not len(small):  # as soon as the sample is full, mostly
            self._grow(name, len(places), text_bytes, {})
            return
        unique, firsts = np.unique(hashes[small], return_index=True)
        chosen = small[firsts]
        # A cut in front of a character leaves up to three bytes less: what is too much is shrunk.
        sizes = np.minimum(lengths[chosen], LONGEST_BYTES - 3)
        few = np.cumsum(sizes) - sizes < self._most()
        taken = text.take(pa.array(chosen[few])).cast(pa.large_binary()).to_pylist()
        texts = dict(zip(unique[few].tolist(), map(_begin, taken), strict=True))
        self._grow(name, len(places), text_bytes, texts)

    def _grow(self, name: str, documents: int, text_bytes: int, texts: dict[int, bytes]) -> None:
        if name not in self.groups and len(self.groups) == MOST_GROUPS:
            first, last = min(self.groups), max(self.groups)
            raise UsageError(
                f"--group_field names a field of more than {MOST_GROUPS:,} values, such as "
                f"{first!r} and {last!r}: name one of few, such as the language"
            )
        group = self.groups.setdefault(name, Group())
        group.documents += documents
        group.text_bytes += text_bytes
        if texts:
            group.texts |= texts
            group.shrink(self._most())

    def _shrunk(self) -> dict[str, Group]:
        """The groups, each with as much as their number allows."""
        for group in self.groups.values():
            group.shrink(self._most())
        return self.groups

    def _most(self) -> int:
        """Bytes of a group's sample; less from 65 groups on, and again whenever they double."""
        return min(GROUP_BYTES, ALL_BYTES >> max(len(self.groups) - 1, 0).bit_length())


def add_samples(parts: Iterable[bytes]) -> bytes:
    """The sample of the text of which these are the samples of parts."""
    total = GroupSample()
    for part in parts:
        total.merge(part)
    return total.to_bytes()


def _begin(text: bytes) -> bytes:
    """What is sampled of a document: whole characters."""
    if len(text) <= LONGEST_BYTES:
        return text
    return text[:LONGEST_BYTES].decode(errors="ignore").encode()
