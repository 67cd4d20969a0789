"""Small corpora of build_corpus, and what they hold."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from textmill.pipelines.build_corpus import main
from textmill.schemas.files.finished import Corpus, open_finished

QUESTIONS = [
    "What colour was the horse of the old king of Norway?",
    "Who ate my soup?",  # too short to be searched for
    "Why do rivers in the far north of the country freeze later than the lakes that they leave?",
    "How many roads must a man walk down",
]
PHRASE = "at the end of the day"  # common language if it is in many documents


def write_lines(path: Path, records: Iterable[str | Mapping[str, Any]]) -> Path:
    """JSON lines; a string is a document of only text."""
    lines = ({"text": one} if isinstance(one, str) else one for one in records)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def build(source: Path, output: Path, *flags: str) -> Corpus:
    """Builds a corpus; a text file has a document a line."""
    lines = ["--document=line"] * (source.suffix == ".txt")
    main([f"--input={source}", f"--output={output}", *lines, *flags])
    return open_finished(Corpus, str(output))


def rows_of(corpus: Corpus) -> list[dict[str, Any]]:
    """All documents, file after file."""
    return [
        row
        for file in corpus.documents
        for row in pq.read_table(f"{corpus.directory}/{file.path}").to_pylist()
    ]


def texts_of(corpus: Corpus) -> list[str]:
    """The text of all documents, sorted."""
    return sorted(row["text"] for row in rows_of(corpus))


def sums_of(corpus: Corpus) -> dict[str, str]:
    """Path to sha256 of every file of documents, kept or removed."""
    return {file.path: file.sha256 for file in corpus.manifest.files if file.split}


def hits_of(corpus: Corpus) -> list[dict[str, Any]]:
    """Which document holds which text of --decontaminate."""
    path = Path(corpus.directory, "rejects", "contamination.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]
