"""Questions of SQuAD planted in reviews and in WikiText: which of their documents are dropped.

    python -m tests.stress.planted_questions [--documents=N] [--peer=PYTHON]

Each different question of the development set goes into one document: verbatim, with other case and
punctuation, or verbatim in the middle of a document of 20. Prints, for each corpus and way, how
many were planted and how many of their documents build_corpus dropped, with precision and recall;
how long it took with and without the flag; and the MB/s of the rule alone. With the Python of an
environment that has datatrove, also its NGramsDecontFilter over some of the documents. Exit code 1
below a precision of 0.99 or a recall of 0.95.
"""

import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import tyro

from tests.tools.places import DATA, ROOT
from textmill.pipelines.corpus.decontamination.matches import Finder
from textmill.pipelines.corpus.decontamination.ngram_index import index_targets
from textmill.pipelines.corpus.decontamination.target_texts import read_targets
from textmill.pipelines.corpus.rules.decontamination import Decontamination
from textmill.schemas.commands.entry import run_entry
from textmill.schemas.errors import DataError

WAYS = ("verbatim", "case and punctuation", "in long text")
TARGET = DATA / "squad/dev-v1.1.json.zst"
_PEER_DOCUMENTS = 2000
_PEER = Path(__file__).with_name("datatrove_decontamination.py")


@dataclass(frozen=True)
class Options:
    """How much, and beside what."""

    documents: int = 25_000
    """Largest number of each corpus."""
    peer: str | None = None
    """The Python of an environment with datatrove."""


def main(argv: list[str]) -> None:
    """Plants, builds, compares."""
    options = tyro.cli(
        Options, prog="python -m tests.stress.planted_questions", args=argv, use_underscores=True
    )
    flags = Decontamination(decontaminate=(str(TARGET),))
    questions = read_targets(flags).text.to_pylist()
    with tempfile.TemporaryDirectory(prefix="textmill-planted-") as folder:
        good = [
            _run_corpus(name, texts[: options.documents], questions, Path(folder), options)
            for name, texts in _corpora()
        ]
    if not all(good):
        raise DataError("precision or recall is below what is due")


def _corpora() -> Iterator[tuple[str, list[str]]]:
    reviews = _read("imdb/train.jsonl.zst").strip().split("\n")
    yield "IMDB", [json.loads(line)["text"] for line in reviews]
    lines = _read("wikitext-2/wiki.train.tokens.zst").split("\n")
    yield "WikiText-2", [line.strip() for line in lines if len(line) > 40]


def _read(name: str) -> str:
    with pa.input_stream(str(DATA / name), compression="zstd") as stream:
        return stream.read().decode()


def _run_corpus(
    name: str, texts: list[str], questions: list[str], folder: Path, options: Options
) -> bool:
    documents = list(_plant(texts, questions))
    source = folder / f"{name}.jsonl"
    source.write_text("".join(json.dumps({"text": text}) + "\n" for text, _ in documents))
    plain, asked = _build(source, []), _build(source, [f"--decontaminate={TARGET}"])
    kept = source.with_suffix("") / "rejects/filtered.jsonl"
    dropped = {json.loads(line)["text"] for line in kept.read_text().strip().split("\n")}
    print(f"\n{name}: {len(documents):,} documents, {source.stat().st_size / 1e6:.1f} MB\n")
    print("| planted | documents | dropped | recall |\n|---|---|---|---|")
    planted = Counter(way for _, way in documents)
    found = Counter(way for text, way in documents if text in dropped)
    for way in (way for way in WAYS if planted[way]):
        share = found[way] / planted[way]
        print(f"| {way} | {planted[way]:,} | {found[way]:,} | {share:.4f} |")
    right = sum(found[way] for way in WAYS)
    precision, recall = right / max(len(dropped), 1), right / sum(planted[way] for way in WAYS)
    print(f"\nprecision {precision:.4f}, recall {recall:.4f}, wrongly dropped {found['']:,}")
    print(f"build_corpus: {plain:.1f} s without the flag, {asked:.1f} s with it")
    _print_speed([text for text, _ in documents])
    if options.peer:
        few = documents[:: max(1, len(documents) // _PEER_DOCUMENTS)]
        _print_peer(options.peer, few, questions)
    return precision >= 0.99 and recall >= 0.95


def _plant(texts: list[str], questions: list[str]) -> Iterator[tuple[str, str]]:
    """Documents, each with the way in which a question was put into it, or ""."""
    draw = random.Random(0)
    long, waiting = texts[: len(texts) // 2], iter(draw.sample(questions, len(questions)))
    for number in range(0, len(long), 20):
        group = long[number : number + 20]
        question = next(waiting, None)
        middle = len(group) // 2
        body = [*group[:middle], *([question] if question else []), *group[middle:]]
        yield " ".join(body), WAYS[2] if question else ""
    for number, text in enumerate(texts[len(long) :]):
        question = next(waiting, None) if number % 2 else None
        if question is None:
            yield text, ""
            continue
        way = WAYS[number // 2 % 2]
        if way == WAYS[1]:
            question = spell_otherwise(draw, question)
        place = text.find(". ") + 2 if ". " in text else len(text)
        yield f"{text[:place]} {question} {text[place:]}", way


def spell_otherwise(draw: random.Random, question: str) -> str:
    """The same words in other case, with other punctuation and line breaks."""
    words = draw.choice([", ", " - ", "\n", " ... "]).join(question.split(" "))
    case = draw.choice([str.upper, str.lower, str.title, str.swapcase])
    return case(words.replace("?", "!?"))


def _build(source: Path, flags: list[str]) -> float:
    """Seconds of a build."""
    began = time.monotonic()
    command = ["-m", "pipelines.build_corpus", f"--input={source}", "--normalize=none"]
    command += [f"--output={source.with_suffix('')}", "--overwrite", "--keep_rejects", *flags]
    subprocess.run([sys.executable, *command], cwd=ROOT, check=True, capture_output=True)
    return time.monotonic() - began


def _print_speed(texts: list[str]) -> None:
    flags = Decontamination(decontaminate=(str(TARGET),))
    ngram, least = flags.decontaminate_ngram, flags.decontaminate_min_words
    finder = Finder(index_targets(read_targets(flags), ngram=ngram, least=least, share=0.0))
    column = pa.array(texts, pa.large_string())
    seconds = []
    for _ in range(4):
        began = time.process_time()
        finder.find(column)
        seconds.append(time.process_time() - began)
    print(f"the rule alone: {column.nbytes / 1e6 / min(seconds):.0f} MB/s of one core's time")


def _print_peer(python: str, documents: list[tuple[str, str]], questions: list[str]) -> None:
    given = {"documents": documents, "questions": questions}
    done = subprocess.run(
        [python, str(_PEER)], input=json.dumps(given), capture_output=True, text=True
    )
    if done.returncode:
        raise DataError(f"datatrove: {done.stderr[-1000:]}")
    print(done.stdout.strip())


if __name__ == "__main__":
    run_entry(main)
