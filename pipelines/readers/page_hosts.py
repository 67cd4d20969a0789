"""Counts web pages whose main text is short, by host (hosts.json of a corpus). Pure.

A crawl has millions of hosts. Every count keeps the MOST_HOSTS with the smallest hashes, each
partial one too. A host that is left at the end was therefore left in all of them, and its counts
are exact. They do not depend on how the pages are divided, nor on their order.
"""

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import urlsplit

import xxhash

from textmill.pipelines.readers.html_text import SHORT, Page
from textmill.schemas.errors import DataError
from textmill.schemas.format.drops import Observed, check_counts, shorten
from textmill.schemas.typed_json import quote

MOST_HOSTS = 1000
SAMPLES_OF_HOST = 3
WEB_PAGES = "web_pages"  # a section of `observed`, with these counts
PAGES, SHORT_PAGES, WITHOUT_HOST = "pages", "short_main_text", "_without_host"
_LONGEST_HOST = 253  # characters, by RFC 1035
_EXCERPT = 100  # characters


def host_of(url: str) -> str:
    """The host of a URL, in lower case; "" if it has none."""
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return ""
    return host if len(host) <= _LONGEST_HOST else ""


def _hash_of(name: str) -> tuple[int, str]:
    return xxhash.xxh3_64_intdigest(name.encode()), name


def fewest_hosts(names: Iterable[str]) -> list[str]:
    """The MOST_HOSTS names with the smallest hashes, in their order."""
    return heapq.nsmallest(MOST_HOSTS, names, key=_hash_of)


@dataclass(frozen=True)
class ShortPage:
    """A page with a short main text.

    Attributes:
      url: its URL.
      share: share of its visible text that is main text, below SHORT.
      excerpt: beginning of its main text.
    """

    url: str
    share: float
    excerpt: str

    def __post_init__(self) -> None:
        """Rejects an impossible share."""
        if not 0 <= self.share < SHORT:
            raise DataError(f"share is {quote(self.share)}: must be from 0 to below {SHORT}")


class WebPage(NamedTuple):
    """A web page whose main text was extracted.

    Attributes:
      document: the number of its document, -1 if it has none, or one that was filtered.
      host: of its URL, "" if that has none.
      short: the page, if its main text is short.
    """

    document: int
    host: str
    short: ShortPage | None

    @staticmethod
    def of(url: str, page: Page, document: int = -1) -> "WebPage":
        """The page at a URL."""
        host, short = host_of(url := shorten(url)), None  # so that a sample shows its host
        if page.is_short:
            short = ShortPage(url, page.share, " ".join(page.text[:_EXCERPT].split()))
        return WebPage(document, host, short)


def _order(page: ShortPage) -> tuple[int, str, float, str]:
    return (*_hash_of(page.url), page.share, page.excerpt)


@dataclass(frozen=True)
class Host:
    """The pages of a host.

    Attributes:
      pages: number of pages whose main text was extracted.
      short_pages: number of these whose main text is short.
      samples: those of the short pages whose URLs have the smallest hashes.
    """

    pages: int = 0
    short_pages: int = 0
    samples: tuple[ShortPage, ...] = ()

    def __post_init__(self) -> None:
        """Rejects counts that contradict each other."""
        check_counts({"pages": self.pages, "short_pages": self.short_pages})
        if self.short_pages > self.pages:
            raise DataError(f"short_pages is {self.short_pages:,}, but pages {self.pages:,}")
        if len(self.samples) > min(self.short_pages, SAMPLES_OF_HOST):
            raise DataError(f"{len(self.samples)} samples of {self.short_pages:,} short pages")

    @staticmethod
    def sum(parts: "Iterable[Host]") -> "Host":
        """Adds up counts of one host."""
        parts = tuple(parts)
        samples = {sample for part in parts for sample in part.samples}
        return Host(
            sum(part.pages for part in parts),
            sum(part.short_pages for part in parts),
            tuple(heapq.nsmallest(SAMPLES_OF_HOST, samples, key=_order)),
        )


@dataclass(frozen=True)
class PageHosts:
    """Web pages by host.

    Attributes:
      hosts: name -> its pages; of all hosts, the MOST_HOSTS with the smallest hashes.
    """

    hosts: dict[str, Host] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Rejects too many hosts."""
        if len(self.hosts) > MOST_HOSTS:
            raise DataError(f"hosts has {len(self.hosts):,} hosts, at most {MOST_HOSTS:,}")

    @staticmethod
    def sum(parts: "Iterable[PageHosts]") -> "PageHosts":
        """Adds up parts; the result does not depend on their order or division."""
        of_host: dict[str, list[Host]] = {}
        for part in parts:
            for name, host in part.hosts.items():
                of_host.setdefault(name, []).append(host)
        return PageHosts({name: Host.sum(of_host[name]) for name in fewest_hosts(of_host)})

    def broken_equations(self, observed: Observed) -> Iterator[str]:
        """Yields each contradiction to itself or to the counts of stats.json, a sentence."""
        counts = observed.get(WEB_PAGES, {})
        for name, own in ((PAGES, "pages"), (SHORT_PAGES, "short_pages")):
            total = sum(getattr(host, own) for host in self.hosts.values())
            expected = counts.get(name, 0) - counts.get(name + WITHOUT_HOST, 0)
            if total > expected or (total < expected and len(self.hosts) < MOST_HOSTS):
                yield f"hosts have {total:,} {own}, but {WEB_PAGES} counts {expected:,}"
        for name, host in self.hosts.items():
            samples = host.samples
            if [*samples] != sorted({*samples}, key=_order) or bool(samples) != bool(
                host.short_pages
            ):
                yield f"samples of {quote(name)} are missing, or not sorted by the hash of the URL"
            for sample in samples:
                if host_of(sample.url) != name:
                    yield f"a sample of {quote(name)} has the URL {quote(sample.url)}"


def count_pages(pages: Iterable[WebPage]) -> tuple[Observed, PageHosts]:
    """Counts pages in all, and by the host of their URL."""
    counts: Counter[str] = Counter()
    parts: list[PageHosts] = []
    for page in pages:
        samples = () if page.short is None else (page.short,)
        names = (PAGES, SHORT_PAGES) if samples else (PAGES,)
        counts.update(names)
        if not page.host:
            counts.update(name + WITHOUT_HOST for name in names)
            continue
        parts.append(PageHosts({page.host: Host(1, len(samples), samples)}))
    return {WEB_PAGES: dict(counts)} if counts else {}, PageHosts.sum(parts)
