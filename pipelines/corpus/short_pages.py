"""Warnings and a section of report.html about hosts whose pages have short main texts. Pure."""

from collections.abc import Sequence

from textmill.pipelines.inspection.report.numbers import cut_text, meter, percent
from textmill.pipelines.inspection.report.parts import CellTable, Excerpts, Shown
from textmill.pipelines.readers.html_text import SHORT
from textmill.pipelines.readers.page_hosts import MOST_HOSTS, Host, PageHosts
from textmill.schemas.commands.terminal import number_of
from textmill.schemas.errors import Caution, flag

_FEWEST = 10  # pages of a host that is worth a warning
_NAMED, _LISTED = 3, 20  # hosts in a warning, and in the report


def warn_of_hosts(pages: PageHosts) -> list[Caution]:
    """A warning about hosts that lose most of their pages, if there are any."""
    losing = [
        f"{host.short_pages:,} of {host.pages:,} pages of {name}"
        for name, host in _ordered(pages)
        if host.pages >= _FEWEST and 2 * host.short_pages > host.pages
    ]
    if not losing:
        return []
    rest = len(losing) - _NAMED
    more = f" and most pages of {number_of(rest, 'more host')}" if rest > 0 else ""
    return [
        Caution(
            f"main text: {', '.join(losing[:_NAMED])}{more} have a main text below a tenth of "
            "their visible text: check the samples in report.html; "
            f"{flag('html', 'all')} keeps all text"
        )
    ]


def show_hosts(pages: PageHosts) -> Sequence[Shown]:
    """The hosts with the most short main texts, and their samples."""
    shown = [(cut_text(name, 80), host) for name, host in _ordered(pages) if host.short_pages]
    if not shown:
        return ()
    sentence = f"The main text of these pages is below {SHORT:.0%} of their visible text."
    if len(pages.hosts) == MOST_HOSTS:
        sentence += f" Only {MOST_HOSTS:,} hosts, chosen by the hash of their name, are counted."
    rows, samples = [], []
    for name, host in shown[:_LISTED]:
        pages_of, short = host.pages, host.short_pages
        rows.append((name, pages_of, short, short / pages_of, meter(short, pages_of)))
        texts = [(percent(one.share), one.excerpt or "(empty)", one.url) for one in host.samples]
        summary = f"{name}: {len(texts)} of {number_of(short, 'page')}"
        samples.append(Excerpts(texts, summary))
    return (sentence, CellTable(rows, ("host", "pages", "short", "share", "")), *samples)


def _ordered(pages: PageHosts) -> list[tuple[str, Host]]:
    """Hosts with the most short pages first."""
    return sorted(pages.hosts.items(), key=lambda item: (-item[1].short_pages, item[0]))
