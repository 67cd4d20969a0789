"""Text of this machine in which no document is there twice.

- reviews: IMDB and NoReC from ../shared/data, 92 MB in 62,000 documents.
- sources: sources and documentation of installed packages and programs, some 1.2 GB. They vary far
  more: words that are new come until the end, as in a large corpus.

`write_json_lines` writes documents as they are. `write_corpus` writes one a line, reviews before
sources; if more is wanted than there is, all follow once more, the number of the turn before each.
"""

import hashlib
import json
import os
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from itertools import chain, count, islice
from pathlib import Path
from typing import Any

import zstandard

from tests.benchmarks.measure import needs
from tests.tools.places import DATA
from textmill.pipelines.encoding.tokenizer import load_tokenizer

REVIEWS = ("imdb/train", "imdb/test", "norec/train", "norec/valid")
CLASSES = ("neg", "pos")
SOURCES = (sysconfig.get_path("purelib"), f"{sys.base_prefix}/lib", "/usr/lib", "/usr/share")
_ENDINGS = {
    *(".c", ".cc", ".cpp", ".css", ".go", ".h", ".hpp", ".html", ".java", ".js", ".json", ".md"),
    *(".pl", ".pm", ".po", ".py", ".pyi", ".rs", ".rst", ".tex", ".ts", ".txt", ".xml"),
}
_SIZES = range(200, 400_000)  # bytes; larger files are tables


def unpacked(name: str) -> bytes:
    """A file of the data: "imdb/train.jsonl.zst".

    Raises:
      CannotRun: it is not there.
    """
    packed = needs(DATA / name).read_bytes()
    return zstandard.ZstdDecompressor().decompressobj().decompress(packed)


@cache
def reviews(*names: str) -> list[dict[str, Any]]:
    """Those of some files: {"text": "on one line", "label": ...}."""
    found = []
    for name in names:
        for line in filter(None, unpacked(f"{name}.jsonl.zst").split(b"\n")):
            review = json.loads(line)
            found.append({**review, "text": " ".join(review["text"].split())})
    return found


def review_texts() -> Iterator[str]:
    """IMDB and NoReC as they are, each text once."""
    for name in REVIEWS:
        for line in filter(None, unpacked(f"{name}.jsonl.zst").split(b"\n")):
            yield json.loads(line)["text"]


def source_texts() -> Iterator[str]:
    """What is installed here: files of SOURCES in UTF-8, by path."""
    for top in SOURCES:
        for folder, folders, names in os.walk(top):
            folders.sort()
            for path in (Path(folder, name) for name in sorted(names)):
                if path.suffix in _ENDINGS and not path.is_symlink():
                    with suppress(OSError, UnicodeDecodeError):
                        if path.stat().st_size in _SIZES:
                            yield path.read_bytes().decode()


def all_texts() -> Iterator[str]:
    """Without an end: reviews and sources, then again with a number before each."""
    for turn in count():
        for text in chain(review_texts(), source_texts()):
            yield f"{turn} " * (turn > 0) + text


TEXTS = {"reviews": review_texts, "sources": source_texts, "all": all_texts}


def within(texts: Iterable[str], megabytes: float) -> Iterator[str]:
    """Texts until there are so many MB, each of them once."""
    seen: set[bytes] = set()
    size = 0
    for text in texts:
        if size >= megabytes * 1e6:
            return
        data = text.encode()
        digest = hashlib.sha256(data).digest()
        if digest not in seen:
            seen.add(digest)
            size += len(data) + 1
            yield text


def write_json_lines(path: Path, megabytes: float, texts: Iterable[str]) -> int:
    """Different texts as JSON Lines, field `text`; returns the bytes of text, line ends counted."""
    return _write_objects(path, ({"text": text} for text in within(texts, megabytes)))


def write_lines(path: Path, megabytes: float, texts: Iterable[str]) -> int:
    """Different texts, a line each; returns the bytes."""
    with open(path, "wb") as file:
        for line in within((" ".join(text.split()) for text in texts), megabytes):
            file.write(f"{line}\n".encode())
        return file.tell()


def write_corpus(path: Path, megabytes: float) -> int:
    """Different texts, a line each; returns the bytes."""
    return write_lines(path, megabytes, all_texts())


def write_labelled(path: Path, megabytes: float) -> int:
    """IMDB's different reviews as JSON Lines of `text` and `label` (neg, pos): 66 MB."""
    labels = {r["text"]: CLASSES[r["label"]] for r in reviews("imdb/train", "imdb/test")}
    chosen = within(labels, megabytes)
    return _write_objects(path, ({"text": text, "label": labels[text]} for text in chosen))


def write_questions(path: Path, questions: int) -> int:
    """SQuAD's first questions as JSON Lines, as `datasets` has them; the bytes of all their texts.

    All 87,599 of them are 70 MB, since each has its context.
    """
    return _write_objects(path, islice(_questions(), questions))


def _questions() -> Iterator[dict[str, Any]]:
    articles = json.loads(unpacked("squad/train-v1.1.json.zst"))["data"]
    for paragraph in (paragraph for article in articles for paragraph in article["paragraphs"]):
        for question in paragraph["qas"]:
            yield {
                "id": question["id"],
                "question": question["question"],
                "context": paragraph["context"],
                "answers": {
                    "text": [answer["text"] for answer in question["answers"]],
                    "answer_start": [answer["answer_start"] for answer in question["answers"]],
                },
            }


def _write_objects(path: Path, documents: Iterator[dict[str, Any]]) -> int:
    size = 0
    with open(path, "w", encoding="utf-8") as file:
        for document in documents:
            file.write(json.dumps(document, ensure_ascii=False) + "\n")
            texts = (document.get(name, "") for name in ("text", "question", "context"))
            size += sum(len(text.encode()) for text in texts) + 1
    return size


def write_tokenizer(path: Path, name: str = "roberta-base") -> Path:
    """A published tokenizer of the data as one tokenizer.json."""
    path.write_bytes(load_tokenizer(needs(DATA / "tokenizers" / name)).json)
    return path
