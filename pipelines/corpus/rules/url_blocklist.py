"""--url_blocklist: drops documents by their URL; docs/inputs.md shows the entries of a list.

Case, the scheme, `www.`, the user and the port do not count.
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

from pipelines import store
from pipelines.corpus.rules.rule import Family, Judged, Rule
from pipelines.readers.files import expand_lists
from schemas.errors import UsageError

_KINDS = ("domain", "address", "word")
_ADDRESS = re.compile(r"(?:[a-z][a-z0-9+.-]*:)?(?://)?(?:[^/?#@]*@)?([^/?#:]*)(?::\d*)?(.*)", re.S)
_WORD = re.compile(r"[^\W_]+")
_ENDS = re.compile(r"[/?#&]|$")


@dataclass(frozen=True)
class UrlBlocklist(Family):
    """Drop documents by their URL, before all other rules."""

    url_blocklist: Annotated[
        tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="FILE")
    ] = ()
    """List of URLs to drop; needs --keep_fields=url; repeatable. Each line of the file has a domain
    (example.com), the beginning of a URL (example.com/forum) or a word (casino)."""

    def roles(self) -> dict[str, str]:
        """The field url."""
        return {"url": f"--url_blocklist={self.url_blocklist[0]}"} if self.url_blocklist else {}

    def parameters(self) -> dict[str, Any]:
        """The sha256 of all entries.

        Raises:
          UsageError: a file is missing or has no entry.
        """
        if not self.url_blocklist:
            return {}
        entries = "\n".join(sorted({*self._entries()}))
        return {"url_blocklist_sha256": hashlib.sha256(entries.encode()).hexdigest()}

    def make_rules(self) -> Iterator[Rule]:
        """One rule, which judges by the URL."""
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
                    f"--url_blocklist={path} cannot be read ({error}): give a text file that all "
                    "workers can read"
                ) from error
            entries = [entry for line in lines if (entry := line.strip()) and entry[0] != "#"]
            if not entries:
                raise UsageError(f"--url_blocklist={path} has no entry: give one in each line")
            yield from entries


class Blocklist(NamedTuple):
    """Entries as keys, of kind and text: "0example.com", "1example.com/forum", "2casino".

    Attributes:
      hash: uint64 [n], hashes of keys, ascending; UT1 has five million entries.
      key: large_string [n], keys in the order of hashes.
      longest: characters of the longest key, which bound those that a URL is looked up by.
    """

    hash: np.ndarray
    key: pa.LargeStringArray
    longest: int

    @classmethod
    def of(cls, entries: Iterable[str]) -> "Blocklist":
        """Makes a blocklist from entries in any order."""
        keys = sorted({_entry_key(entry) for entry in entries})
        hashes = _hash(keys)
        order = np.argsort(hashes, kind="stable")
        ordered = pa.array(keys, pa.large_string()).take(pa.array(order))
        return cls(hashes[order], ordered, max(map(len, keys)))

    def find(self, keys: list[str]) -> np.ndarray:
        """Bool [keys]: whether each key is an entry."""
        place = np.minimum(np.searchsorted(self.hash, hashes := _hash(keys)), len(self.hash) - 1)
        is_entry = self.hash[place] == hashes
        for number in np.flatnonzero(is_entry).tolist():
            is_entry[number] = self.key[int(place[number])].as_py() == keys[number]
        return is_entry


def judge(url: pa.LargeStringArray, blocklist: Blocklist) -> Judged:
    """Drops documents whose URL matches an entry; documents without a URL are kept."""
    keys, document = [], []
    for number, address in enumerate(url.to_pylist()):
        if address:
            own = list(dict.fromkeys(_keys(address, blocklist.longest)))
            keys += own
            document += [number] * len(own)
    reason = np.zeros(len(url), np.int64)
    measured = np.full(len(url), "", object)
    hits = np.flatnonzero(blocklist.find(keys)) if keys else []
    for hit in reversed(hits):  # the first hit of a document is written last
        reason[document[hit]] = int(keys[hit][0]) + 1
        measured[document[hit]] = keys[hit][1:]
    return Judged(reason, measured=measured)


def _hash(keys: list[str]) -> np.ndarray:
    return np.array([xxhash.xxh3_64_intdigest(key.encode()) for key in keys], np.uint64)


def _parts(address: str) -> tuple[str, str]:
    """The host without www., and the rest: "https://WWW.a.com:80/B" -> "a.com", "/B"."""
    match = _ADDRESS.match(address.strip().lower())
    host, rest = match.groups() if match else ("", "")
    host = host.rstrip(".").removeprefix("www.")
    if not host.isascii():
        try:
            host = host.encode("idna").decode()
        except UnicodeError:  # no valid host name
            pass
    return host, rest


def _entry_key(entry: str) -> str:
    host, rest = _parts(entry)
    if rest.strip("/"):
        return "1" + host + rest.rstrip("/")
    return ("0" if "." in host else "2") + host


def _keys(address: str, longest: int) -> Iterator[str]:
    """All entries of at most `longest` characters that match a URL, as keys, by kind."""
    host, rest = _parts(address)
    begins = [0, *(dot.end() for dot in re.finditer(r"\.", host))]
    for begin in begins:
        if len(host) - begin < longest:
            yield "0" + host[begin:]
    for end in _ENDS.finditer(rest):
        if len(host) + end.start() >= longest:
            break
        yield "1" + host + rest[: end.start()]
    for word in _WORD.findall(unquote(host + rest)):
        yield "2" + word
