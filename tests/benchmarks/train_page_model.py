"""Trains the table of trees that chooses the main content of pages, and cross-validates it.

    git clone https://github.com/Murrough-Foley/web-content-extraction-benchmark wcxb
    git clone https://github.com/scrapinghub/article-extraction-benchmark
    git clone https://github.com/adbar/trafilatura
    pip install lightgbm
    python -m tests.benchmarks.train_page_model --wcxb=wcxb \
        --articles=article-extraction-benchmark --trafilatura=trafilatura/tests

Pages: the development part of WCXB and article-extraction-benchmark, with their whole text, and
those of trafilatura's evaluation, with some sentences inside and outside of it. A block's label is
the share of its sequences of up to four words that occur in the text. Each page weighs the same,
and a block as much as it changes the page's F1. Folds are by domain: no site is trained on and
judged. The table goes to pipelines/readers/; --folds=0 only trains. --scripts also judges the pages
of WCXB with their text in other scripts (`page_scripts`).
"""

import gzip
import html
import json
import re
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import tyro

from tests.benchmarks.compare_html import FOLDS, load_articles, load_sentences
from tests.benchmarks.page_scripts import SCRIPTS, Script, write_in
from textmill.pipelines.readers import page_model
from textmill.pipelines.readers.block_features import Blocks, expand, measure_blocks
from textmill.pipelines.readers.main_text import choose, parse_html
from textmill.pipelines.readers.page_encoding import decode_page
from textmill.pipelines.readers.page_model import Trees, parse_trees
from textmill.pipelines.readers.page_scan import BREAK, Elements, Runs, scan

_WORD = re.compile(r"\w+")
_WORDS = 4  # of a sequence
_ALWAYS = 0.0005  # weight of a block of any size
_TREES, _RATE = 160, 0.1


@dataclass(frozen=True)
class Training:
    """Where judged pages are, and what is done."""

    wcxb: str
    """Folder of WCXB; only its development part is read."""
    articles: str = ""
    """Folder of article-extraction-benchmark."""
    trafilatura: str = ""
    """Folder tests/ of trafilatura."""
    folds: int = 5
    """Folds of the cross-validation; 0: none."""
    scripts: bool = False
    """Whether folds are judged in other scripts, too; takes minutes."""
    output: str = f"pipelines/readers/{page_model.TABLE}"
    """The table to write."""
    tables: str = ""
    """Folder for the tables of the folds, with which `compare_html --tables` judges pages."""


@dataclass(frozen=True)
class JudgedPage:
    """A page and what people say of it.

    Attributes:
      kind: kind of page, or name of the benchmark.
      domain: the registered domain, about.
      words: words of the text; None where only sentences are known.
      markup: the page as a parser writes it.
      elements: its elements; None without text.
      blocks: measures; None without text.
      block_words: words of each block.
      labels: float32 [B], share of a block that is text; NaN if unknown.
    """

    kind: str
    domain: str
    words: list[str] | None
    markup: bytes
    elements: Elements | None
    blocks: Blocks | None
    block_words: list[list[str]]
    labels: np.ndarray


def read_pages(options: Training) -> Iterator[JudgedPage]:
    """Yields the pages of all benchmarks."""
    dev = Path(options.wcxb) / "dev"
    for path in sorted((dev / "ground-truth").glob("*.json")):
        judged = json.loads(path.read_text("utf-8"))
        page = gzip.decompress((dev / "html" / f"{path.stem}.html.gz").read_bytes())
        kind = (judged["_internal"]["page_type"] or {}).get("primary", "article")
        text = judged["ground_truth"].get("main_content") or ""
        yield judge_by_text(
            page, "collection" if kind == "category" else kind, judged.get("url", path.stem), text
        )
    if options.articles:
        for number, (page, text) in enumerate(
            zip(*load_articles(Path(options.articles)), strict=True)
        ):
            yield judge_by_text(page, "articles", f"articles-{number}", text)
    if options.trafilatura:
        for number, (page, (inside, outside)) in enumerate(
            zip(*load_sentences(Path(options.trafilatura)), strict=True)
        ):
            yield judge_by_sentences(page, f"sentences-{number}", inside, outside)


def judge_by_text(page: bytes, kind: str, url: str, text: str) -> JudgedPage:
    """A page whose whole text is known."""
    markup, elements, blocks, words = _read(page)
    due = _words(text)
    grams = [
        {tuple(due[at : at + n]) for at in range(len(due) - n + 1)} for n in range(1, 1 + _WORDS)
    ]
    labels = np.full(len(words), np.nan, np.float32)
    for block, own in enumerate(words):
        if size := min(_WORDS, len(own)):
            found = [
                tuple(own[at : at + size]) in grams[size - 1] for at in range(len(own) - size + 1)
            ]
            labels[block] = np.mean(found)
    return JudgedPage(kind, _domain(url), due, markup, elements, blocks, words, labels)


def judge_by_sentences(page: bytes, url: str, inside: list[str], outside: list[str]) -> JudgedPage:
    """A page of which some sentences are known."""
    markup, elements, blocks, words = _read(page)
    joined = [f" {' '.join(own)} " for own in words]
    labels = np.full(len(words), np.nan, np.float32)
    for label, sentences in ((0, outside), (1, inside)):
        for sentence in filter(None, (" ".join(_words(sentence)) for sentence in sentences)):
            for block, text in enumerate(joined):
                if f" {sentence} " in text:
                    labels[block] = label
    return JudgedPage("sentences", _domain(url), None, markup, elements, blocks, words, labels)


def _read(page: bytes) -> tuple[bytes, Elements | None, Blocks | None, list[list[str]]]:
    markup = str(parse_html(decode_page(page))).encode("utf-8", "replace")
    elements, runs, count = scan(np.frombuffer(markup, np.uint8))
    if not count:
        return markup, None, None, []
    blocks = measure_blocks(markup, elements, runs, count)
    return markup, elements, blocks, block_words(markup, runs, count)


def block_words(markup: bytes, runs: Runs, count: int) -> list[list[str]]:
    """The words of each block."""
    pieces: list[list[bytes]] = [[] for _ in range(count)]
    for start, stop, block, kind in zip(
        runs.starts, runs.stops, runs.blocks, runs.kinds, strict=True
    ):
        pieces[block].append(b" " if kind == BREAK else markup[start:stop])
    return [_words(html.unescape(b"".join(own).decode("utf-8", "replace"))) for own in pieces]


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def _domain(url: str) -> str:
    host = urlsplit(url).hostname or url
    parts = host.split(".")
    return ".".join(parts[-2:] if len(parts) < 2 or len(parts[-2]) > 3 else parts[-3:])


def weigh_blocks(page: JudgedPage) -> np.ndarray:
    """The weights of a page's blocks: about the change of F1 if the block is misjudged."""
    assert page.blocks is not None
    sizes, labels = page.blocks.sizes, np.nan_to_num(page.labels)
    total = sizes[~np.isnan(page.labels)].sum() if page.words is None else sizes.sum()
    weights = sizes / max(float((sizes * labels).sum() + 0.15 * total), 1.0) + _ALWAYS
    return np.where(np.isnan(page.labels), 0, weights)


def train(pages: list[JudgedPage]) -> str:
    """Trains trees; the text of a table."""
    # For this script only.
    import lightgbm  # pyright: ignore[reportMissingImports]

    x = np.concatenate([expand(page.blocks) for page in pages if page.blocks is not None])
    y = np.concatenate([np.nan_to_num(page.labels) for page in pages if page.blocks is not None])
    w = np.concatenate([weigh_blocks(page) for page in pages if page.blocks is not None])
    known = w > 0
    data = lightgbm.Dataset(x[known], y[known], weight=w[known] / w[known].mean())
    settings = {
        **{
            "objective": "cross_entropy",
            "num_leaves": page_model.MOST_LEAVES,
            "learning_rate": _RATE,
        },
        **{"min_data_in_leaf": 60, "lambda_l2": 5, "max_bin": 63, "verbose": -1},
        **{"feature_fraction": 0.4, "bagging_fraction": 0.6, "bagging_freq": 1},
        **{"num_threads": 1, "deterministic": True, "force_row_wise": True, "seed": 0},
    }
    return write_table(lightgbm.train(settings, data, num_boost_round=_TREES).dump_model())


def write_table(model: dict[str, Any]) -> str:
    """The table of a model that LightGBM dumps, as `page_model.parse_trees` reads it."""
    lines = ["feature:threshold:left:right ...; leaves in 1/1024 logit. By train_page_model.py"]
    for tree in model["tree_info"]:
        splits, leaves = [], []

        def visit(node: dict[str, Any], splits: list = splits, leaves: list = leaves) -> int:
            if "split_index" not in node:
                leaves.append(round(node["leaf_value"] * 1024))
                return -len(leaves)
            number = len(splits)
            splits.append("")
            left, right = visit(node["left_child"]), visit(node["right_child"])
            threshold = f"{float(np.float32(node['threshold'])):.6g}"
            splits[number] = f"{node['split_feature']}:{threshold}:{left}:{right}"
            return number

        visit(tree["tree_structure"])
        if splits:
            lines.append(" ".join(splits) + ";" + " ".join(map(str, leaves)))
    return "\n".join(lines) + "\n"


def score(page: JudgedPage, trees: Trees, script: Script | None = None) -> float:
    """WCXB's F1 of words of a page whose text is known, without readers' comments.

    Args:
      page: the page.
      trees: a table that did not see it.
      script: the script in which blocks are chosen; the words are still those of the page.
    """
    chosen: Counter[str] = Counter()
    elements, blocks = page.elements, page.blocks
    if elements is not None and blocks is not None:
        if script:
            elements, blocks = _write_blocks(page.markup, script)
        for block in np.flatnonzero(choose(elements, blocks, trees=trees)[0]):
            chosen.update(page.block_words[block])
    due = Counter(page.words)
    if not due or not chosen:
        return float(not due and not chosen)
    return 2 * (chosen & due).total() / (chosen.total() + due.total())


def _write_blocks(markup: bytes, script: Script) -> tuple[Elements, Blocks]:
    """The elements and blocks of a page in a different script."""
    elements, runs, _ = scan(np.frombuffer(markup, np.uint8))
    markup = write_in(markup, elements, runs, script)
    elements, runs, count = scan(np.frombuffer(markup, np.uint8))
    return elements, measure_blocks(markup, elements, runs, count)


def main(options: Training) -> None:
    """Cross-validates, then trains on all pages and writes the table."""
    pages = list(read_pages(options))
    print(f"{len(pages):,} pages, {sum(len(page.labels) for page in pages):,} blocks", flush=True)
    fold_of = [zlib.crc32(page.domain.encode()) % max(options.folds, 1) for page in pages]
    if options.tables:
        folds = {zlib.crc32(page.markup): f for page, f in zip(pages, fold_of, strict=True)}
        Path(options.tables, FOLDS).write_text(json.dumps(folds), "utf-8")
    scores: dict[str, list[float]] = defaultdict(list)
    scripts: dict[str, list[float]] = defaultdict(list)
    for fold in range(options.folds):
        table = train([p for p, f in zip(pages, fold_of, strict=True) if f != fold])
        trees = parse_trees(table)
        if options.tables:
            Path(options.tables, f"{fold}.csv").write_text(table, "utf-8")
        for page in (p for p, f in zip(pages, fold_of, strict=True) if f == fold):
            if page.words is not None:
                scores[page.kind].append(score(page, trees))
            if options.scripts and page.words is not None and page.kind != "articles":
                for name, script in SCRIPTS.items():
                    scripts[name].append(score(page, trees, script))
        print(f"fold {fold + 1} of {options.folds}", flush=True)
    for kind, values in scores.items():
        print(f"{kind}: {np.mean(values):.3f} ({len(values)} pages)")
    wcxb = [value for kind, values in scores.items() if kind != "articles" for value in values]
    if wcxb:
        print(f"WCXB, all: {np.mean(wcxb):.4f} ({len(wcxb):,} pages)")
    for name, values in scripts.items():
        print(f"WCXB in letters of {name}: {np.mean(values):.4f}")
    Path(options.output).write_text(train(pages), "utf-8")


if __name__ == "__main__":
    main(tyro.cli(Training))
