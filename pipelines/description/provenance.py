"""The origin of documents, from the metadata of the corpus that they are in. Pure."""

import json
import os
from dataclasses import dataclass
from functools import cached_property

from textmill.pipelines.description.counts import ALL, Count, Metadata, removed
from textmill.pipelines.readers.page_hosts import (
    PAGES,
    SHORT_PAGES,
    WEB_PAGES,
    WITHOUT_HOST,
)
from textmill.schemas.format.manifest import HOSTS

_MOST_PATHS = 50  # of inputs
_RIGHTS = (
    *("documents_by_license", "documents_by_robots", "documents_by_x_robots_tag"),
    "documents_by_tdm_reservation",
)
_FEWEST_DOMAINS = 20  # or a tenth of all, which the template requires
_OTHER_NAMES = {"no": "nb"}  # labels of identifiers -> codes of the Hub


@dataclass(frozen=True)
class Domain:
    """The web pages of a host.

    Attributes:
      name: its name.
      pages: their number.
      share: of all pages, in percent.
    """

    name: str
    pages: Count
    share: str


@dataclass(frozen=True)
class Provenance:
    """The counts that a corpus has of its sources and filters.

    Attributes:
      corpus: its metadata.
    """

    corpus: Metadata

    @property
    def name(self) -> str:
        """The name of its directory."""
        return self.corpus.name

    @property
    def inputs(self) -> dict[str, Count]:
        """The sizes of all inputs."""
        count = self.corpus.count
        return {
            "files": self.corpus.entries("inputs.json", "files"),
            "bytes of these files": count("inputs.json", "files", ALL, "bytes"),
            "bytes after decompression": count("stats.json", "source_bytes"),
            "documents read": count("stats.json", "documents_read"),
        }

    @cached_property
    def paths(self) -> list[str]:
        """The inputs as folder and ending, crawl/*.warc.gz; of many, the first ones."""
        files = (file["path"] for file in self.corpus.files["inputs.json"]["files"])
        found = sorted({*map(_pattern, files)})
        return found[:_MOST_PATHS]

    @property
    def languages(self) -> dict[str, Count]:
        """The documents that the rule of languages read, by language."""
        return self.corpus.counts("stats.json", "observed", "language", ALL)

    @property
    def kept_languages(self) -> list[str]:
        """The codes of the languages of --language."""
        codes: dict[str, float] = self.corpus.parameters.get("language", {})
        return [_OTHER_NAMES.get(code, code) for code in codes]

    @property
    def pages(self) -> dict[str, Count]:
        """The numbers of web pages and of their hosts."""
        found = self._observed(
            WEB_PAGES,
            {
                PAGES: "web pages",
                SHORT_PAGES: "with a short main text",
                PAGES + WITHOUT_HOST: "without a host in the URL",
            },
        )
        if HOSTS in self.corpus.files:
            found["hosts in hosts.json"] = self.corpus.entries(HOSTS, "hosts")
        return found

    @property
    def has_all_domains(self) -> bool:
        """Whether hosts.json has every host of a page."""
        counted = self.corpus.count("stats.json", "observed", WEB_PAGES, PAGES).number
        counted -= self.corpus.count(
            "stats.json", "observed", WEB_PAGES, PAGES + WITHOUT_HOST
        ).number
        return self.corpus.count(HOSTS, "hosts", ALL, "pages").number == counted

    @property
    def domains(self) -> list[Domain]:
        """The hosts with the most pages: a tenth of all, at least 20."""
        whole = self.corpus.count("stats.json", "observed", WEB_PAGES, PAGES).number
        found = self.corpus.counts(HOSTS, "hosts", ALL, "pages")
        most = max(_FEWEST_DOMAINS, -(-len(found) // 10))
        return [
            Domain(name, pages, f"{pages.number / whole:.2%}")
            for name, pages in [*found.items()][:most]
        ]

    @property
    def removed(self) -> dict[str, Count]:
        """The documents that were read and are not in the corpus, by reason."""
        return removed(self.corpus)

    @property
    def unlawful(self) -> dict[str, Count]:
        """The documents and texts that were removed because they must not be used."""
        found = {
            f"documents removed: {reason}": count
            for reason, count in self.removed.items()
            if reason.partition(":")[0] in ("url_blocklist", "forgotten")
        }
        replaced = self.corpus.counts("stats.json", "observed", "pii", ALL)
        return found | {f"personal data replaced: {kind}": n for kind, n in replaced.items()}

    @property
    def years(self) -> dict[str, Count]:
        """The documents of the corpus by the year of their field date."""
        return self.corpus.counts("stats.json", "observed", "documents_by_year", ALL)

    @property
    def rights(self) -> dict[str, Count]:
        """The documents of the corpus by licences and reservations of rights."""
        found = {}
        for section in _RIGHTS:
            title = section.removeprefix("documents_by_")
            counts = self.corpus.counts("stats.json", "observed", section, ALL)
            found |= {f"{title}: {key}": count for key, count in counts.items()}
        return found

    @property
    def respects(self) -> str:
        """The value of --respect; "" without it."""
        return self.corpus.parameters.get("respect", "")

    @property
    def respected(self) -> dict[str, Count]:
        """The pages that --respect removed, by reason; 0 for those of which there were none."""
        names = (f"respect:{name}" for name in self.respects.split(",") if name)
        return {name: self.corpus.count("stats.json", "dropped", name) for name in names}

    @property
    def flags(self) -> dict[str, tuple[str, str]]:
        """Flag to its value and position."""
        return {
            name: (
                json.dumps(value, ensure_ascii=False),
                f"{self.corpus.where}schema.json#/parameters/{name}",
            )
            for name, value in sorted(self.corpus.parameters.items())
        }

    def _observed(self, section: str, titles: dict[str, str]) -> dict[str, Count]:
        found = {
            title: self.corpus.count("stats.json", "observed", section, name)
            for name, title in titles.items()
        }
        return {title: count for title, count in found.items() if count.number}


def _pattern(path: str) -> str:
    folder, name = os.path.split(path)
    stem, dot, ending = name.partition(".")
    return os.path.join(folder, f"*.{ending}" if dot else stem)
