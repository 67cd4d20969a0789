"""Text of any size from ../shared/data, in which no document is there twice.

All reviews (IMDB, NoReC: 54,000 of about 1,350 bytes) are taken in turn, again and again, and each
document begins with its own number, "57312 I rented this ...": dropping duplicates leaves it whole,
and what repeats is words, as in any large corpus. (Distinct words do grow more slowly than in one
of that size: 402,000 in 110 MB, hardly more in 1 GB but for the numbers.)
"""

import json
from collections.abc import Iterator
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import zstandard

from tests.benchmarks.measure import needs
from tests.tools.places import DATA
from textmill.pipelines.encoding.tokenizer import load_tokenizer

REVIEWS = ("imdb/train", "imdb/test", "norec/train", "norec/valid")
CLASSES = ("neg", "pos")


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


def numbered(megabytes: float, *names: str) -> Iterator[dict[str, Any]]:
    """Reviews, each with its number before it, until there are so many MB of text."""
    chosen, size = reviews(*names), 0
    for number in count():
        if size >= megabytes * 1e6:
            return
        review = chosen[number % len(chosen)]
        text = f"{number} {review['text']}"
        size += len(text.encode()) + 1
        yield {**review, "text": text}


def write_corpus(path: Path, megabytes: float) -> int:
    """Reviews, a line each; returns the bytes."""
    with open(path, "wb") as file:
        for review in numbered(megabytes, *REVIEWS):
            file.write(f"{review['text']}\n".encode())
        return file.tell()


def write_json_lines(path: Path, megabytes: float) -> int:
    """The same as JSON Lines, field `text`; returns the bytes of text, line ends counted."""
    return _write_objects(path, ({"text": r["text"]} for r in numbered(megabytes, *REVIEWS)))


def write_labelled(path: Path, megabytes: float) -> int:
    """IMDB's training reviews as JSON Lines of `text` and `label` (neg, pos)."""
    documents = numbered(megabytes, "imdb/train")
    return _write_objects(
        path, ({"text": d["text"], "label": CLASSES[d["label"]]} for d in documents)
    )


def write_questions(path: Path, questions: int) -> int:
    """So many of SQuAD's as JSON Lines, as `datasets` has them; the bytes of all their texts.

    After the last one they begin anew, with the number of the turn before each question.
    """
    return _write_objects(path, _questions(questions))


def _questions(wanted: int) -> Iterator[dict[str, Any]]:
    articles = json.loads(unpacked("squad/train-v1.1.json.zst"))["data"]
    paragraphs = [paragraph for article in articles for paragraph in article["paragraphs"]]
    asked = [(paragraph, question) for paragraph in paragraphs for question in paragraph["qas"]]
    for number in range(wanted):
        turn, place = divmod(number, len(asked))
        paragraph, question = asked[place]
        yield {
            "id": question["id"] + f"-{turn}" * (turn > 0),
            "question": f"{turn} " * (turn > 0) + question["question"],
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
