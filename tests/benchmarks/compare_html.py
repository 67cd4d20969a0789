"""--html beside other extractors: precision, recall, F1 and speed, in one run.

    git clone https://github.com/scrapinghub/article-extraction-benchmark
    git clone https://github.com/adbar/trafilatura
    pip install readability-lxml justext
    python -m tests.benchmarks.compare_html --articles=article-extraction-benchmark \
        --trafilatura=trafilatura/tests

The first has 181 news pages and the whole text of their articles: precision and recall are those of
sequences of four words, averaged over pages. The second has 990 pages in many languages, with some
sentences each that are text and some that are not: a sentence that is found counts as a hit or a
miss. Each extractor reads the stored bytes; speed is megabytes of HTML a second of processor time,
its import excluded. A package that is not installed has no row.
"""

import gzip
import importlib.metadata
import importlib.util
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from pipelines.readers.html_text import HTML, UnusablePageError, read_page
from pipelines.readers.page_encoding import decode_page
from tests.benchmarks.clock import timed

Extract = Callable[[bytes], str]
_WORD = re.compile(r"\w+")
_WORDS = 4  # of a sequence


@dataclass(frozen=True)
class Comparison:
    """What is compared, on which pages."""

    articles: str = ""
    """Folder of article-extraction-benchmark."""
    trafilatura: str = ""
    """Folder tests/ of trafilatura."""
    only: str = ""
    """Names of extractors, with commas between; none: all."""


@dataclass(frozen=True)
class Scores:
    """Shares of an extractor."""

    precision: float
    recall: float

    @property
    def f1(self) -> float:
        """Their harmonic mean."""
        total = self.precision + self.recall
        return 2 * self.precision * self.recall / total if total else 0.0


def extractors() -> Iterator[tuple[str, str, Extract]]:
    """Name, package and function of each that can run."""
    for html in HTML:
        yield f"--html={html}", "textmill", lambda page, html=html: _ours(page, html)
    for name, package, module, make in (
        ("trafilatura", "trafilatura", "trafilatura", _trafilatura),
        ("trafilatura, fast", "trafilatura", "trafilatura", lambda: _trafilatura(fast=True)),
        ("resiliparse, main content", "resiliparse", "resiliparse", _resiliparse),
        ("readability-lxml", "readability-lxml", "readability", _readability),
        ("jusText", "justext", "justext", _justext),
    ):
        if importlib.util.find_spec(module):
            yield name, package, make()


def _ours(page: bytes, html: str) -> str:
    try:
        return read_page(page, "text/html", html).text
    except UnusablePageError:
        return ""


def _trafilatura(*, fast: bool = False) -> Extract:
    import trafilatura  # a package of few; so are those below

    return lambda page: trafilatura.extract(page, fast=fast, include_comments=False) or ""


def _resiliparse() -> Extract:
    from resiliparse.extract.html2text import (  # pyright: ignore[reportMissingModuleSource]
        extract_plain_text,
    )

    return lambda page: extract_plain_text(decode_page(page), main_content=True, comments=False)


def _readability() -> Extract:
    import lxml.html
    import readability  # pyright: ignore[reportMissingImports]

    def extract(page: bytes) -> str:
        summary = readability.Document(decode_page(page)).summary()
        # Of each element the text in a line of its own, so that no words run together.
        return "\n".join(lxml.html.fromstring(summary).itertext())

    return extract


def _justext() -> Extract:
    import justext

    def extract(page: bytes) -> str:
        # Without a list of a language's words, which would have to be known: it scores higher here.
        markup = decode_page(page)
        paragraphs = justext.justext(markup, frozenset(), stopwords_low=0, stopwords_high=0)
        return "\n".join(p.text for p in paragraphs if not p.is_boilerplate)

    return extract


def sequences(text: str) -> Counter[tuple[str, ...]]:
    """How often each sequence of four words is in a text; a shorter text is one.

    "a b c d e" -> {(a, b, c, d): 1, (b, c, d, e): 1}
    """
    words = _WORD.findall(text)
    starts = range(max(1, len(words) - _WORDS + 1)) if words else ()
    return Counter(tuple(words[at : at + _WORDS]) for at in starts)


def score_articles(found: Sequence[str], due: Sequence[str]) -> Scores:
    """Scores by sequences of words, averaged over the pages that have any."""
    precisions, recalls = [], []
    for text, article in zip(found, due, strict=True):
        ours, theirs = sequences(text), sequences(article)
        common = (ours & theirs).total()
        if ours:
            precisions.append(common / ours.total())
        if theirs:
            recalls.append(common / theirs.total())
    return Scores(_mean(precisions), _mean(recalls))


def score_sentences(
    found: Sequence[str], due: Sequence[tuple[Sequence[str], Sequence[str]]]
) -> Scores:
    """Scores by sentences that are text and sentences that are not, of each page."""
    hits = misses = wrong = 0
    for text, (inside, outside) in zip(found, due, strict=True):
        hits += sum(sentence in text for sentence in inside)
        misses += sum(sentence not in text for sentence in inside)
        wrong += sum(sentence in text for sentence in outside)
    return Scores(hits / max(hits + wrong, 1), hits / max(hits + misses, 1))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def load_articles(folder: Path) -> tuple[list[bytes], list[str]]:
    """Pages and the text of their articles."""
    due = json.loads((folder / "ground-truth.json").read_text(encoding="utf-8"))
    pages = [gzip.decompress((folder / "html" / f"{key}.html.gz").read_bytes()) for key in due]
    return pages, [page.get("articleBody", "") for page in due.values()]


def load_sentences(folder: Path) -> tuple[list[bytes], list[tuple[list[str], list[str]]]]:
    """Pages and their sentences, inside and outside of the text."""
    pages, due = [], []
    for entry in json.loads((folder / "evaldata.json").read_text(encoding="utf-8")).values():
        paths = [folder / name / entry["file"] for name in ("cache", "eval")]
        for path in (path for path in paths if path.exists()):
            pages.append(path.read_bytes())
            due.append((entry["with"], entry["without"]))
            break
    return pages, due


def main(options: Comparison) -> None:
    """Prints a table for each set of pages."""
    sets = []
    if options.articles:
        sets.append(("articles", *load_articles(Path(options.articles)), score_articles))
    if options.trafilatura:
        sets.append(("sentences", *load_sentences(Path(options.trafilatura)), score_sentences))
    wanted = {*filter(None, options.only.split(","))}
    for title, pages, due, score in sets:
        megabytes = sum(map(len, pages)) / 1e6
        print(f"\n{title}: {len(pages):,} pages, {megabytes:.1f} MB")
        print("| extractor | F1 | precision | recall | MB/s of CPU | version |")
        print("|---|---|---|---|---|---|")
        for name, package, extract in extractors():
            if wanted and name not in wanted:
                continue
            extract(pages[0])  # imports, and what is compiled at first
            seconds, found = timed(lambda extract=extract: list(map(extract, pages)))  # noqa: B023
            scores = score(found, due)
            shares = (scores.f1, scores.precision, scores.recall)
            version = importlib.metadata.version(package)
            row = (name, *(f"{share:.3f}" for share in shares), f"{megabytes / seconds.cpu:.1f}")
            print("|", " | ".join((*row, version)), "|", flush=True)


if __name__ == "__main__":
    main(tyro.cli(Comparison))
