"""Documents are dropped by their address: --url_blocklist.

A list has an entry a line; lines that begin with # are comments. What an entry is, its form says:
  - `example.com`, with a dot: the host and all below it, www.example.com too;
  - `example.com/forum`, with a slash: addresses that begin so, up to the end of a part;
  - `casino`, with neither: addresses with this word, letters and digits between other characters.
Case, the scheme, `www.`, the user and the port do not count. UT1's lists of domains and addresses,
which FineWeb was made with, are of this form.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import tyro
import xxhash

from pipelines.corpus.rules.rule import Family, Judged, Rule
from pipelines.readers.files import expand_lists
from pipelines.storage import store
from schemas.errors import UsageError

_KINDS = ("domain", "address", "word")
_ADDRESS = re.compile(r"(?:[a-z][a-z0-9+.-]*:)?(?://)?(?:[^/?#@]*@)?([^/?#:]*)(?::\d*)?(.*)", re.S)
_WORD = re.compile(r"[^\W_]+")
_ENDS = re.compile(r"[/?#&]|$")


@dataclass(frozen=True)
class UrlBlocklist(Family):
    """Documents are dropped by their address, before anything else is looked at."""

    url_blocklist: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """Drop documents by their url: files with a domain (example.com), the beginning of an address
    (example.com/forum) or a word (casino) in each line; may be given more than once."""

    def roles(self) -> dict[str, str]:
        """The address."""
        return {"url": f"--url_blocklist={self.url_blocklist[0]}"} if self.url_blocklist else {}

    def parameters(self) -> dict[str, Any]:
        """The sha256 of all entries.

        Raises:
          UsageError: a file is not there, or has no entry.
        """
        if not self.url_blocklist:
            return {}
        entries = "\n".join(sorted({*self._entries()}))
        return {"url_blocklist_sha256": hashlib.sha256(entries.encode()).hexdigest()}

    def make_rules(self) -> Iterator[Rule]:
        """One rule, which judges by the url."""
        if self.url_blocklist:
            blocklist = Blocklist.of(self._entries())
            reasons = tuple(f"url_blocklist:{kind}" for kind in _KINDS)
            yield Rule(reasons, lambda text, url: judge(url, blocklist), roles=("url",))

    def _entries(self) -> Iterator[str]:
        for path in expand_lists(self.url_blocklist):
            try:
                lines = store.read(path).decode().splitlines()
            except (OSError, UnicodeDecodeError) as error:
                raise UsageError(
                    f"--url_blocklist={path} cannot be read here ({error}): give a text file that "
                    "all workers see"
                ) from error
            entries = [entry for line in lines if (entry := line.strip()) and entry[0] != "#"]
            if not entries:
                raise UsageError(f"--url_blocklist={path} has no entry")
            yield from entries


class Blocklist(NamedTuple):
    """Entries as keys, kind and text: "0example.com", "1example.com/forum", "2casino".

    Attributes:
      hash: uint64 [n], ascending: 8 bytes an entry, of which UT1 has five million.
      key: [n], in this order.
    """

    hash: np.ndarray
    key: pa.LargeStringArray

    @classmethod
    def of(cls, entries: Iterable[str]) -> "Blocklist":
        """The entries of lists, in any order."""
        keys = sorted({_entry_key(entry) for entry in entries})
        hashes = _hash(keys)
        order = np.argsort(hashes, kind="stable")
        return cls(hashes[order], pa.array(keys, pa.large_string()).take(pa.array(order)))

    def find(self, keys: list[str]) -> np.ndarray:
        """Bool: which of the keys are entries."""
        place = np.minimum(np.searchsorted(self.hash, hashes := _hash(keys)), len(self.hash) - 1)
        found = self.hash[place] == hashes
        for number in np.flatnonzero(found).tolist():
            found[number] = self.key[int(place[number])].as_py() == keys[number]
        return found


def judge(url: pa.LargeStringArray, blocklist: Blocklist) -> Judged:
    """Drops documents whose address has an entry; those without an address are kept."""
    keys, document = [], []
    for number, address in enumerate(url.to_pylist()):
        if address:
            own = list(dict.fromkeys(_keys(address)))
            keys += own
            document += [number] * len(own)
    reason = np.zeros(len(url), np.int64)
    measured = np.full(len(url), "", object)
    hits = np.flatnonzero(blocklist.find(keys)) if keys else []
    for hit in reversed(hits):  # the first of a document stays
        reason[document[hit]] = int(keys[hit][0]) + 1
        measured[document[hit]] = keys[hit][1:]
    return Judged(reason, measured=measured)


def _hash(keys: list[str]) -> np.ndarray:
    return np.array([xxhash.xxh3_64_intdigest(key.encode()) for key in keys], np.uint64)


def _parts(address: str) -> tuple[str, str]:
    """The host without www., and what follows it: "https://WWW.a.com:80/B" -> "a.com", "/B"."""
    found = _ADDRESS.match(address.strip().lower())
    host, rest = found.groups() if found else ("", "")
    host = host.rstrip(".").removeprefix("www.")
    if not host.isascii():
        try:
            host = host.encode("idna").decode()
        except UnicodeError:  # no name that could be asked for
            pass
    return host, rest


def _entry_key(entry: str) -> str:
    host, rest = _parts(entry)
    if rest.strip("/"):
        return "1" + host + rest.rstrip("/")
    return ("0" if "." in host else "2") + host


def _keys(address: str) -> Iterator[str]:
    """All entries that an address may have, as keys, by kind."""
    host, rest = _parts(address)
    labels = host.split(".")
    for first in range(len(labels)):
        yield "0" + ".".join(labels[first:])
    for end in _ENDS.finditer(rest):
        yield "1" + host + rest[: end.start()]
    for word in _WORD.findall(unquote(host + rest)):
        yield "2" + word
