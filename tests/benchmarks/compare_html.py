"""--html beside other extractors: precision, recall, F1 and speed, in one run.

    git clone https://github.com/scrapinghub/article-extraction-benchmark
    git clone https://github.com/adbar/trafilatura
    git clone https://github.com/Murrough-Foley/web-content-extraction-benchmark wcxb
    pip install readability-lxml justext rs-trafilatura magic-html  # the last: Python 3.12
    python -m tests.benchmarks.compare_html --articles=article-extraction-benchmark \
        --trafilatura=trafilatura/tests --wcxb=wcxb

The first has 181 news pages and the whole text of their articles: precision and recall are those of
sequences of four words, averaged over pages. The second has 990 pages in many languages, with some
sentences each that are text and some that are not: a sentence that is found counts as a hit or a
miss. The third has 1,497 pages of seven kinds and their whole text: precision, recall and F1 are
those of words, by WCXB's own rules, averaged over pages; its test part is never read. Each
extractor reads the stored bytes; speed is megabytes of HTML a second of processor time, its import
excluded. A package that is not installed has no row; one that raises has found nothing.
--tables judges each page by a table that `train_page_model --tables` trained without its site.
"""

import gzip
import importlib.metadata
import importlib.util
import json
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import tyro

from tests.benchmarks.clock import timed
from textmill.pipelines.readers import main_text, page_model
from textmill.pipelines.readers.html_text import HTML, Extraction, UnusablePageError, read_page
from textmill.pipelines.readers.main_text import parse_html
from textmill.pipelines.readers.page_encoding import decode_page
from textmill.schemas.commands.entry import run_entry
from textmill.schemas.errors import UsageError

Extract = Callable[[bytes], str]
_WORD = re.compile(r"\w+")
_WORDS = 4  # of a sequence
_current = [b""]  # the page that is converted
FOLDS = "folds.json"  # beside the tables of the folds: checksum of a page to its fold


@dataclass(frozen=True)
class Comparison:
    """What is compared, on which pages."""

    articles: str = ""
    """Folder of article-extraction-benchmark."""
    trafilatura: str = ""
    """Folder tests/ of trafilatura."""
    wcxb: str = ""
    """Folder of WCXB, or its folder dev/; only pages in dev/ are read."""
    pages: int = 0
    """Maximum number of pages of each set, evenly spread; 0: all."""
    tables: str = ""
    """Folder of the tables of a cross-validation; none: the table in the package, which was trained
    on these pages."""
    only: str = ""
    """Names of extractors, separated by semicolons; none: all."""


@dataclass(frozen=True)
class Scores:
    """Shares of an extractor.

    Attributes:
      precision: share of the found text that is right.
      recall: share of the right text that is found.
      f1: their harmonic mean, or a mean of those of pages.
      kinds: F1 of each kind of page.
    """

    precision: float
    recall: float
    f1: float
    kinds: Mapping[str, float] = field(default_factory=dict)


def harmonic_mean(precision: float, recall: float) -> float:
    """F1: 2 P R / (P + R); 0 if both are 0."""
    total = precision + recall
    return 2 * precision * recall / total if total else 0.0


def extractors() -> Iterator[tuple[str, str, Extract]]:
    """Name, package and function of each that can run."""
    for html in HTML:
        yield f"--html={html}", "textmill", lambda page, html=html: _ours(page, html)
    yield "--html_comments=keep", "textmill", lambda page: _ours(page, "main", "keep")
    for name, package, module, make in (
        ("trafilatura", "trafilatura", "trafilatura", _trafilatura),
        ("trafilatura, fast", "trafilatura", "trafilatura", lambda: _trafilatura(fast=True)),
        (
            "trafilatura, without comments",
            "trafilatura",
            "trafilatura",
            lambda: _trafilatura(comments=False),
        ),
        ("rs-trafilatura", "rs-trafilatura", "rs_trafilatura", _rs_trafilatura),
        ("resiliparse, main content", "resiliparse", "resiliparse", _resiliparse),
        ("readability-lxml", "readability-lxml", "readability", _readability),
        ("magic_html", "magic-html", "magic_html", _magic_html),
        ("jusText", "justext", "justext", _justext),
    ):
        if importlib.util.find_spec(module):
            yield name, package, _forgiving(make())


def _forgiving(extract: Extract) -> Extract:
    """An extractor of others that finds nothing where it raises."""

    def call(page: bytes) -> str:
        try:
            return extract(page)
        except Exception:  # each package has its own
            return ""

    return call


def _ours(page: bytes, html: str, comments: str = "drop") -> str:
    _current[0] = page
    try:
        return read_page(page, "text/html", Extraction(html, comments)).text
    except UnusablePageError:
        return ""


def _trafilatura(*, fast: bool = False, comments: bool = True) -> Extract:
    import trafilatura  # a package of few; so are those below

    return lambda page: trafilatura.extract(page, fast=fast, include_comments=comments) or ""


def _rs_trafilatura() -> Extract:
    import rs_trafilatura  # pyright: ignore[reportMissingImports]

    return lambda page: rs_trafilatura.extract(decode_page(page)).main_content or ""


def _resiliparse() -> Extract:
    from resiliparse.extract.html2text import (  # pyright: ignore[reportMissingModuleSource]
        extract_plain_text,
    )

    return lambda page: extract_plain_text(decode_page(page), main_content=True, comments=False)


def _readability() -> Extract:
    import readability  # pyright: ignore[reportMissingImports]

    return lambda page: _all_text(readability.Document(decode_page(page)).summary())


def _all_text(markup: str) -> str:
    """The text of each element in a line of its own, so that no words run together."""
    import lxml.html

    return "\n".join(lxml.html.fromstring(markup).itertext()) if markup.strip() else ""


def _magic_html() -> Extract:
    import magic_html  # pyright: ignore[reportMissingImports]

    extractor = magic_html.GeneralExtractor()
    return lambda page: _all_text(extractor.extract(decode_page(page), base_url="")["html"])


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
    return _scores(_mean(precisions), _mean(recalls))


def score_sentences(
    found: Sequence[str], due: Sequence[tuple[Sequence[str], Sequence[str]]]
) -> Scores:
    """Scores by sentences that are text and sentences that are not, of each page."""
    hits = misses = wrong = 0
    for text, (inside, outside) in zip(found, due, strict=True):
        hits += sum(sentence in text for sentence in inside)
        misses += sum(sentence not in text for sentence in inside)
        wrong += sum(sentence in text for sentence in outside)
    return _scores(hits / max(hits + wrong, 1), hits / max(hits + misses, 1))


def score_kinds(found: Sequence[str], due: Sequence[tuple[str, str]]) -> Scores:
    """Scores by words of pages of several kinds, averaged over pages, by WCXB's rules.

    Args:
      found: texts that were extracted.
      due: kind and text of each page.
    """
    scores = [score_words(text, article) for text, (_, article) in zip(found, due, strict=True)]
    by_kind: dict[str, list[float]] = {kind: [] for kind in sorted({kind for kind, _ in due})}
    for (kind, _), (_, _, f1) in zip(due, scores, strict=True):
        by_kind[kind].append(f1)
    precision, recall, f1 = map(_mean, zip(*scores, strict=True))
    return Scores(precision, recall, f1, {kind: _mean(each) for kind, each in by_kind.items()})


def score_words(found: str, due: str) -> tuple[float, float, float]:
    """Precision, recall and F1 of a page's words, in any order and case."""
    ours, theirs = (Counter(_WORD.findall(text.lower())) for text in (found, due))
    if not ours or not theirs:
        return (1.0, 1.0, 1.0) if not ours and not theirs else (0.0, 0.0, 0.0)
    common = (ours & theirs).total()
    precision, recall = common / ours.total(), common / theirs.total()
    return precision, recall, harmonic_mean(precision, recall)


def _scores(precision: float, recall: float) -> Scores:
    return Scores(precision, recall, harmonic_mean(precision, recall))


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


def load_kinds(folder: Path) -> tuple[list[bytes], list[tuple[str, str]]]:
    """Pages of WCXB's development part, and their kind and text."""
    if (folder / "dev").is_dir():
        folder = folder / "dev"
    if folder.resolve().name != "dev":
        raise UsageError(f"--wcxb={folder}: it has no folder dev/; the test part is not for tuning")
    pages, due = [], []
    for path in sorted((folder / "ground-truth").glob("*.json")):
        entry = json.loads(path.read_text(encoding="utf-8"))
        pages.append(gzip.decompress((folder / "html" / f"{path.stem}.html.gz").read_bytes()))
        kind = entry["_internal"]["page_type"]["primary"]
        text = entry["ground_truth"].get("main_content") or ""
        due.append(("collection" if kind == "category" else kind, text))
    return pages, due


def use_tables(folder: Path, pages: Sequence[bytes]) -> None:
    """From now on, --html judges each of these pages by the table of its fold."""
    folds = json.loads((folder / FOLDS).read_text(encoding="utf-8"))
    tables = {
        fold: page_model.parse_trees((folder / f"{fold}.csv").read_text(encoding="utf-8"))
        for fold in set(folds.values())
    }
    trees = {}
    for page in pages:
        markup = str(parse_html(decode_page(page))).encode("utf-8", "replace")
        trees[page] = tables[folds[str(zlib.crc32(markup))]]
    judge = page_model.choose_blocks
    main_text.choose_blocks = lambda blocks, _=None: judge(blocks, trees[_current[0]])


def main(argv: Sequence[str]) -> None:
    """Prints a table for each set of pages."""
    options = tyro.cli(Comparison, description=__doc__, args=argv)
    sets = []
    if options.articles:
        sets.append(("articles", *load_articles(Path(options.articles)), score_articles))
    if options.trafilatura:
        sets.append(("sentences", *load_sentences(Path(options.trafilatura)), score_sentences))
    if options.wcxb:
        sets.append(("kinds", *load_kinds(Path(options.wcxb)), score_kinds))
    wanted = {*filter(None, map(str.strip, options.only.split(";")))}
    for title, pages, due, score in sets:
        step = -(-len(pages) // options.pages) if options.pages else 1
        pages, due = pages[::step], due[::step]
        megabytes = sum(map(len, pages)) / 1e6
        if options.tables:
            use_tables(Path(options.tables), pages)
        print(f"\n{title}: {len(pages):,} pages, {megabytes:.1f} MB")
        kinds = score([""] * len(pages), due).kinds
        columns = ("extractor", "F1", *kinds, "precision", "recall", "MB/s of CPU", "version")
        print("|", " | ".join(columns), "|")
        print("|---" * len(columns) + "|")
        for name, package, extract in extractors():
            if wanted and name not in wanted:
                continue
            extract(pages[0])  # imports, and what is compiled at first
            seconds, found = timed(lambda extract=extract: list(map(extract, pages)))  # noqa: B023
            scores = score(found, due)
            shares = (scores.f1, *scores.kinds.values(), scores.precision, scores.recall)
            version = importlib.metadata.version(package)
            row = (name, *(f"{share:.3f}" for share in shares), f"{megabytes / seconds.cpu:.1f}")
            print("|", " | ".join((*row, version)), "|", flush=True)


if __name__ == "__main__":
    run_entry(main)
