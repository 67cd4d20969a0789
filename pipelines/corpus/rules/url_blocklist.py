"""--url_blocklist: drops documents by their URL; docs/inputs.md shows the entries of a list.

Case, the scheme, `www.`, the user and the port do not count. Hosts are compared as browsers write
them: percent-decoded, and in punycode.
"""

import hashlib
import ipaddress
import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import tyro
import xxhash

from textmill.pipelines.corpus.rules.rule import Rule, RuleGroup, RuleResult
from textmill.pipelines.readers.files import expand_lists
from textmill.schemas.errors import UsageError, flag
from textmill.schemas.files import store

_KINDS = ("domain", "address", "word")
_ADDRESS = re.compile(
    r"(?:(?:https?|ftp):[/\\]*|(?:[a-z][a-z0-9+.-]*:)?[/\\]{2})?(?:[^/\\?#]*@)?"
    r"(\[[^\]/\\?#]*\]|[^/\\?#:]*)(?::\d*)?(.*)",
    re.S,
)
_BREAKS = str.maketrans("", "", "\t\n\r")  # which browsers remove from a URL
_IGNORED = re.compile(
    "[\u00ad\u034f\u180b-\u180d\u200b\u2060\ufe00-\ufe0f\ufeff]"
)  # UTS 46, in hosts
_PUNYCODE = "xn--"
_MOST_LABEL = 63  # characters of a label: punycode takes quadratic time
_WORD = re.compile(r"[^\W_]+")
_ENDS = re.compile(r"[/?#&]|$")
_PLAIN = re.compile(r"(?!www\.)(?:[a-z0-9-]{1,63}\.)+[a-z]{2,63}")  # most entries of most lists
_DOMAIN = re.compile(r"(?:[a-z0-9_-]{1,63}\.)+[a-z0-9_-]{1,63}|\[[0-9a-f:.]+\]")
_COMMENT = re.compile(r"[#!]|\[(?![0-9a-f:.]+\]).*\]$", re.I)  # also [Adblock Plus 2.0]
_TRAILING = re.compile(r"\s#.*")
_OPTIONS = {"all", "doc", "document", "important", "popup"}  # adblock's, which concern whole pages
_NOT_OF_A_PAGE = re.compile(r"[*^|]|#[@?$]?#")  # wildcards, and adblock's rules for elements


@dataclass(frozen=True)
class UrlBlocklist(RuleGroup):
    """Drop documents by their URL, before all other rules."""

    url_blocklist: Annotated[
        tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="FILE")
    ] = ()
    """List of URLs to drop; needs --keep_fields=url; repeatable. Each line of the file has a domain
    (example.com, *.example.com, ||example.com^ or 0.0.0.0 example.com), the beginning of a URL
    (example.com/forum) or a word (casino)."""

    def roles(self) -> dict[str, str]:
        """The field url."""
        return {"url": flag("url_blocklist", self.url_blocklist[0])} if self.url_blocklist else {}

    def parameters(self) -> dict[str, Any]:
        """The sha256 of all entries, however they are written.

        Raises:
          UsageError: a file is missing, has no entry, or has a line that is none.
        """
        if not self.url_blocklist:
            return {}
        entries = "\n".join(sorted({*self._keys()}))
        return {"url_blocklist_sha256": hashlib.sha256(entries.encode()).hexdigest()}

    def make_rules(self) -> Iterator[Rule]:
        """One rule, which judges by the URL."""
        if self.url_blocklist:
            blocklist = Blocklist.of(self._keys())
            reasons = tuple(f"url_blocklist:{kind}" for kind in _KINDS)
            yield Rule(reasons, lambda text, url: judge(url, blocklist), roles=("url",))

    def _keys(self) -> Iterator[str]:
        for path in expand_lists(self.url_blocklist, "url_blocklist"):
            try:
                lines = store.read(path).decode("utf-8-sig").splitlines()
            except (OSError, UnicodeDecodeError) as error:
                raise UsageError(
                    f"{flag('url_blocklist', path)} cannot be read ({error}): give a text file "
                    "that all workers can read"
                ) from error
            has_entry = False
            for number, line in enumerate(lines, 1):
                try:
                    keys = parse_line(line)
                except ValueError as error:
                    raise UsageError(
                        f"{flag('url_blocklist', path)}, line {number}: {line.strip()!r} {error}; "
                        "correct or remove the line"
                    ) from error
                has_entry |= bool(keys)
                yield from keys
            if not has_entry:
                raise UsageError(
                    f"{flag('url_blocklist', path)} has no entry: give one in each line"
                )


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
        """Makes a blocklist from keys in any order."""
        keys = sorted({*entries})
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


def judge(url: pa.LargeStringArray, blocklist: Blocklist) -> RuleResult:
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
    return RuleResult(reason, measured=measured)


def _hash(keys: list[str]) -> np.ndarray:
    return np.array([xxhash.xxh3_64_intdigest(key.encode()) for key in keys], np.uint64)


def parse_line(line: str) -> list[str]:
    """The entries in a line of a list, as keys: "||Bad.com^" -> ["0bad.com"].

    Reads domains, wildcards (*.bad.com, .bad.com), lines of hosts files, adblock's rules for whole
    pages, beginnings of URLs, and words; a comment has no entry.

    Raises:
      ValueError: the line is none of these.
    """
    line = line.strip()
    if _PLAIN.fullmatch(line):
        return ["0" + line]
    if not line or _COMMENT.match(line):
        return []
    first, *names = _TRAILING.sub("", line).split()
    if not names:
        return [_entry_key(first)]
    if _ip_address(first) is None:
        raise ValueError("has several words: give one domain, beginning of a URL or word in a line")
    # Hosts files begin with the machine's own names, which have no dot.
    return [
        _entry_key(name)
        for name in names
        if "." in name and name != "localhost.localdomain" and _ip_address(name) is None
    ]


def _entry_key(entry: str) -> str:
    entry = entry.lower()
    if _WORD.fullmatch(entry):
        return "2" + entry
    if entry.startswith("|"):
        entry, _, options = entry.partition("$")
        if options and not {*options.split(",")} <= _OPTIONS:
            raise ValueError(f"blocks parts of pages (${options}), not pages")
        entry = entry.lstrip("|").rstrip("^*|")
    if _ip_address(entry):
        entry = f"[{entry}]" if ":" in entry else entry
    host, rest = _parts(entry.removeprefix("*:").removesuffix("/*"))
    host = host.removeprefix("*.").lstrip(".").removeprefix("www.")
    if not _DOMAIN.fullmatch(host) or _NOT_OF_A_PAGE.search(rest):
        raise ValueError(
            "is not a domain (example.com), beginning of a URL (example.com/forum) or word (casino)"
        )
    return "1" + host + rest.rstrip("/") if rest.strip("/") else "0" + host


def _ip_address(text: str) -> str | None:
    try:
        return ipaddress.ip_address(text).compressed
    except ValueError:
        return None


def _parts(address: str) -> tuple[str, str]:
    """The host without www., and the rest: "https://WWW.a.com:80/%42" -> "a.com", "/b"."""
    match = _ADDRESS.match(address.strip().translate(_BREAKS).lower())
    host, rest = match.groups() if match else ("", "")
    if "%" in rest:
        rest = unquote(rest).lower()
    return plain_host(host).rstrip(".").removeprefix("www."), rest


def plain_host(host: str) -> str:
    """A host as browsers write it: "b%C3%BCcher.de" -> "xn--bcher-kva.de", "[0::1]" -> "[::1]"."""
    if host.startswith("["):
        return f"[{_ip_address(host[1:-1]) or host[1:-1]}]"
    if "%" in host:
        host = unquote(host).lower()
    if host.isascii():
        return host
    host = unicodedata.normalize("NFKC", _IGNORED.sub("", host)).lower().replace("\u3002", ".")
    return ".".join(
        label
        if label.isascii() or len(label) > _MOST_LABEL
        else _PUNYCODE + label.encode("punycode").decode()
        for label in host.split(".")
    )


def _letters_of(host: str) -> str:
    """A host in the letters of its language: "xn--bcher-kva.de" -> "bücher.de"."""
    if _PUNYCODE not in host:
        return host
    labels = host.split(".")
    for number, label in enumerate(labels):
        if label.startswith(_PUNYCODE) and len(label) <= _MOST_LABEL:
            try:
                labels[number] = label.removeprefix(_PUNYCODE).encode().decode("punycode")
            except UnicodeError:  # no valid label
                pass
    return ".".join(labels)


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
    for word in _WORD.findall(_letters_of(host) + rest):
        yield "2" + word
