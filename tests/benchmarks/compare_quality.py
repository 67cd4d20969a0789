"""--quality beside datatrove's filters: verdicts document for document, and speed, in one run.

    uv venv DIR; uv pip install --python DIR/bin/python 'datatrove[processing,multilingual]==0.9.0'
    python -m tests.benchmarks.compare_quality --python=DIR/bin/python --documents=100000

Documents are IMDB reviews with their line breaks, paragraphs and articles of WikiText-2, and
contexts and articles of SQuAD, all of ../shared/data: about 100,000, of which an even share is
taken. datatrove needs half an hour for all of them. Every document whose verdict differs is shown.
"""

import json
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import tyro

from tests.benchmarks.clock import Seconds, timed
from tests.benchmarks.corpora import unpacked
from tests.benchmarks.measure import run_command
from tests.tools.places import ROOT
from textmill.pipelines.corpus.filters import Filters, papers, rules_of
from textmill.pipelines.corpus.rules.rule import Rule, RuleResult


@dataclass(frozen=True)
class Comparison:
    """What is compared."""

    python: str
    """The interpreter of an environment with datatrove."""
    documents: int = 2000
    """At most; 100,000 for all."""


def english_documents() -> Iterator[str]:
    """All of them."""
    for part in ("train", "test"):
        for line in filter(None, unpacked(f"imdb/{part}.jsonl.zst").split(b"\n")):
            yield json.loads(line)["text"].replace("<br />", "\n")
    for part in ("train", "valid", "test"):
        article: list[str] = []
        text = unpacked(f"wikitext-2/wiki.{part}.tokens.zst").decode()
        for line in filter(None, map(str.strip, text.split("\n"))):
            if re.fullmatch("= [^=].* =", line) and article:
                yield "\n".join(article)
                article = []
            article.append(line)
            yield line
        yield "\n".join(article)
    for part in ("train", "dev"):
        for topic in json.loads(unpacked(f"squad/{part}-v1.1.json.zst"))["data"]:
            contexts = dict.fromkeys(paragraph["context"] for paragraph in topic["paragraphs"])
            yield from contexts
            yield "\n\n".join(contexts)


def measure(rule: Rule, text: pa.LargeStringArray) -> tuple[Seconds, RuleResult]:
    """A rule's verdicts; twice, since loops are compiled at first."""
    rule.judge(text.slice(0, 10))
    return timed(lambda: rule.judge(text))


def main(options: Comparison) -> None:
    """Prints a table, and what differs."""
    all_documents = list(english_documents())
    step = max(1, len(all_documents) // options.documents)
    documents = all_documents[::step]
    megabytes = sum(len(document.encode()) for document in documents) / 1e6
    with tempfile.TemporaryDirectory() as folder:
        given, verdicts = Path(folder, "documents.jsonl"), Path(folder, "verdicts.json")
        lines = (json.dumps({"text": document}) + "\n" for document in documents)
        given.write_text("".join(lines))
        script = ROOT / "tests/benchmarks/scripts/quality_datatrove.py"
        _, said = run_command([options.python, str(script), str(given), str(verdicts)])
        seconds, theirs = json.loads(said.splitlines()[-1]), json.loads(verdicts.read_text())
    text = pa.array(documents, pa.large_string())
    print(f"{len(documents):,} documents, {megabytes:.1f} MB; MB/s of processor time")
    print("| rules | Textmill | datatrove | ratio | dropped | verdicts that differ | texts |")
    print("|---|---|---|---|---|---|---|")
    for name in papers():
        [rule] = rules_of(Filters(quality=(name,)))
        taken, judged = measure(rule, text)
        dropped, due = (judged.reason > 0).tolist(), [bool(reason) for reason in theirs[name]]
        differ = [i for i, (a, b) in enumerate(zip(dropped, due, strict=True)) if a != b]
        edited = (text if judged.text is None else judged.text).to_pylist()
        texts = zip(edited, theirs[f"{name} texts"], dropped, due, strict=True)
        other = sum(ours != text for ours, text, a, b in texts if not a and not b)
        ours, peer = megabytes / taken.cpu, megabytes / seconds[name][1]
        row = (name, f"{ours:.1f}", f"{peer:.2f}", f"{ours / peer:.0f}", f"{sum(dropped):,}")
        print("|", " | ".join((*row, str(len(differ)), str(other))), "|")
        for place in differ:
            reason = rule.reasons[judged.reason[place] - 1] if dropped[place] else "kept"
            print(
                f"  {reason}; datatrove: {theirs[name][place] or 'kept'}: {documents[place]!r:.200}"
            )


if __name__ == "__main__":
    main(tyro.cli(Comparison))
