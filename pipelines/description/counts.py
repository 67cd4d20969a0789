"""The counts of a finished directory, each with its position in a metadata file. Pure.

A position is a JSON pointer (RFC 6901) behind the name of the file. `*` stands for all keys, whose
numbers add up: `stats.json#/files/*/documents`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from textmill.schemas.format.drops import BY_SHARD

ALL = "*"


@dataclass(frozen=True)
class Count:
    """A number, and its position.

    Attributes:
      number: the number.
      place: its position: "stats.json#/documents_read".
    """

    number: int
    place: str


@dataclass(frozen=True)
class Metadata:
    """The metadata files of a corpus or a dataset as parsed JSON.

    Attributes:
      noun: corpus or dataset.
      name: the name of its directory.
      files: name to content; those that the manifest lists.
      where: what precedes the name of a file in positions; "" in the described directory.
    """

    noun: str
    name: str
    files: Mapping[str, Any]
    where: str = ""

    @property
    def schema(self) -> dict[str, Any]:
        """The content of schema.json."""
        return self.files["schema.json"]

    @property
    def parameters(self) -> dict[str, Any]:
        """The flags that decide its content."""
        return self.schema["parameters"]

    def count(self, file: str, *keys: str) -> Count:
        """The number at a position, or the sum of several; 0 if there is none.

        count("stats.json", "files", "*", "words") adds up the words of all files.
        """
        numbers = (value for _, value in _find(self.files.get(file), keys))
        return Count(sum(numbers), self._place(file, keys))

    def counts(self, file: str, *keys: str) -> dict[str, Count]:
        """The numbers at a position with one `*`, by the key that it stands for; largest first."""
        at = keys.index(ALL)
        found = {
            taken[at]: Count(value, self._place(file, taken))
            for taken, value in _find(self.files.get(file), keys)
        }
        return dict(sorted(found.items(), key=lambda item: (-item[1].number, item[0])))

    def entries(self, file: str, *keys: str) -> Count:
        """The number of entries of a list or an object."""
        [found] = [len(value) for _, value in _find(self.files[file], keys, (list, dict))]
        return Count(found, f"{self._place(file, keys)} (entries)")

    def _place(self, file: str, keys: tuple[str, ...]) -> str:
        parts = "".join("/" + key.replace("~", "~0").replace("/", "~1") for key in keys)
        return f"{self.where}{file}#{parts}"


def _find(
    value: Any, keys: tuple[str, ...], kinds: type | tuple[type, ...] = int
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yields each value of some kinds at a position, and its keys."""
    if not keys:
        if isinstance(value, kinds):
            yield (), value
        return
    first, *others = keys
    there = value.items() if isinstance(value, dict) else ()
    for key, inner in enumerate(value) if isinstance(value, list) else there:
        if first in (ALL, str(key)):
            for more, found in _find(inner, tuple(others), kinds):
                yield (str(key), *more), found


def sizes(described: Metadata) -> dict[str, Count]:
    """The size of a corpus or a dataset, by title."""
    count = described.count
    if described.noun == "corpus":
        return {
            "documents": count("stats.json", "files", ALL, "documents"),
            "words (separated by white space)": count("stats.json", "files", ALL, "words"),
            "bytes of text (UTF-8)": count("stats.json", "files", ALL, "text_bytes"),
        }
    found = {
        "documents": count("stats.json", "total", "documents"),
        "tokens": count("stats.json", "total", "tokens"),
        "words (separated by white space)": count("stats.json", "total", "words"),
        "bytes of text (UTF-8)": count("stats.json", "total", "text_bytes"),
    }
    for split, rows in sorted(described.counts("stats.json", "splits", ALL, "rows").items()):
        found[f"rows of the split {split}"] = rows
    return {title: each for title, each in found.items() if each.number or title == "documents"}


def removed(described: Metadata) -> dict[str, Count]:
    """The documents that were read and are not in it, by reason."""
    if described.noun == "corpus":
        return described.counts("stats.json", "dropped", ALL)
    found = described.counts("stats.json", "documents_rejected", ALL)
    for drop in BY_SHARD:
        if (each := described.count("stats.json", "total", drop.name)).number:
            found[drop.name] = each
    return found
