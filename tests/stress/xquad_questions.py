"""XQuAD's questions planted in its contexts, by language: which of them decontamination finds.

    git clone https://github.com/google-deepmind/xquad && \\
        python -m tests.stress.xquad_questions --xquad=xquad

Each question goes into contexts three times: verbatim, in other case and punctuation, and verbatim
in the middle of ten contexts. Prints how many are too short to be looked for, the recall of each
way, and how many contexts are found without a question in them: they hold 13 words of one. Exit
code 1 below a recall of 0.95 in any language.
"""

import json
import random
import unicodedata
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import tyro

from tests.stress.planted_questions import WAYS, spell_otherwise
from textmill.pipelines.corpus.decontamination.matches import Finder
from textmill.pipelines.corpus.decontamination.ngram_index import index_targets
from textmill.pipelines.corpus.decontamination.target_texts import read_targets
from textmill.pipelines.corpus.rules.decontamination import Decontamination
from textmill.schemas.commands.entry import run_entry
from textmill.schemas.errors import DataError

_AT_ONCE = 500


@dataclass(frozen=True)
class Options:
    """Where XQuAD is."""

    xquad: Path
    """The directory with xquad.en.json and the others."""


def main(argv: list[str]) -> None:
    """Plants, looks, prints."""
    options = tyro.cli(
        Options, prog="python -m tests.stress.xquad_questions", args=argv, use_underscores=True
    )
    print(f"| language | questions | too short | {' | '.join(WAYS)} | contexts found |")
    print("|---|---|---|---|---|---|---|")
    least = 1.0
    for path in sorted(options.xquad.glob("xquad.*.json")):
        targets = read_targets(Decontamination(decontaminate=(str(path),)))
        flags = Decontamination()
        ngram, words = flags.decontaminate_ngram, flags.decontaminate_min_words
        finder = Finder(index_targets(targets, ngram=ngram, least=words, share=0.0))
        topics = json.loads(path.read_text(encoding="utf-8"))["data"]
        contexts = [part["context"] for topic in topics for part in topic["paragraphs"]]
        questions, draw = targets.text.to_pylist(), random.Random(path.name)
        documents = [
            (plant(draw, question, contexts, way), way) for question in questions for way in WAYS
        ]
        found = Counter(documents[place][1] for place in find(finder, [d for d, _ in documents]))
        recalls = [found[way] / len(questions) for way in WAYS]
        least = min(least, sum(recalls) / len(WAYS))
        short = int(finder.index.short_T.sum())
        shown = " | ".join(f"{recall:.4f}" for recall in recalls)
        others = f"{len(find(finder, contexts))} of {len(contexts)}"
        print(f"| {path.stem[-2:]} | {len(questions):,} | {short} | {shown} | {others} |")
    if least < 0.95:
        raise DataError(f"a recall of {least:.4f} is below 0.95")


def find(finder: Finder, texts: list[str]) -> set[int]:
    """The documents that hold a question."""
    return {
        document + start
        for start in range(0, len(texts), _AT_ONCE)
        for document, _ in finder.find(
            pa.array(texts[start : start + _AT_ONCE], pa.large_string())
        ).hits
    }


def plant(draw: random.Random, question: str, contexts: list[str], way: str) -> str:
    """A context with the question after a sentence, or anywhere in ten of them."""
    context = draw.choice(contexts)
    place = context.find(". ") + 2 if ". " in context else draw.randrange(len(context))
    if way == WAYS[1]:
        question = spell_otherwise(draw, question)
    elif way == WAYS[2]:
        context = " ".join(draw.sample(contexts, 10))
        place = len(context) // 2
    while place < len(context) and unicodedata.category(context[place])[0] == "M":
        place += 1
    return f"{context[:place]} {question} {context[place:]}"


if __name__ == "__main__":
    run_entry(main)
