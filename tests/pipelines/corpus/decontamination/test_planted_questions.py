"""Questions planted in text of their language: at least 95 % are found, and no other document.

`questions.yaml` holds them. Documents are their words in another order, with a question verbatim,
or in other case and punctuation, and with other line breaks. Half of the documents have none, but
halves of two questions.
"""

import random
import re
import textwrap
import unicodedata
from pathlib import Path

import pyarrow as pa
import pytest
import yaml

from tests.pipelines.corpus.decontamination.test_matches import targets_of
from textmill.pipelines.corpus.decontamination.matches import Finder
from textmill.pipelines.corpus.decontamination.ngram_index import index_targets
from textmill.pipelines.corpus.rules.decontamination import Decontamination

QUESTIONS = yaml.safe_load(Path(__file__).with_name("questions.yaml").read_text(encoding="utf-8"))
UNSPACED = ("ja", "th", "zh")
THREE = "(?:.[\u0e31\u0e34-\u0e3a\u0e47-\u0e4e]*){3}"  # characters, each with its Thai marks
CASES = (str, str.upper, str.lower, str.title, str.swapcase)


def document_of(draw, question, language):
    every = " ".join(QUESTIONS[language])
    words = re.findall(THREE, every) if language in UNSPACED else every.split()
    before, after = (draw.sample(words, 30) for _ in range(2))
    return ("" if language in UNSPACED else " ").join([*before, question, *after])


def in_other_words(draw, question):
    """The same words in other case, with other punctuation and line breaks."""
    joint = draw.choice([" ", ", ", " - ", "\n", " ... "])
    spelt = joint.join(question.rstrip("?;؟？。").split(" ")) + draw.choice(["", "!?", "."])
    return draw.choice(CASES)(draw.choice([spelt, wrap(spelt)]))


def wrap(text):
    """Lines of at most 30 characters, which end anywhere but before a mark where no space is."""
    lines = textwrap.wrap(text, 30)
    for line in range(1, len(lines)):
        while unicodedata.category(lines[line][0])[0] == "M":
            lines[line - 1], lines[line] = lines[line - 1] + lines[line][0], lines[line][1:]
    return "\n".join(lines)


@pytest.mark.parametrize("language", QUESTIONS)
def test_planted_questions_are_found(language):
    draw, questions = random.Random(language), QUESTIONS[language]
    planted = [document_of(draw, question, language) for question in questions]
    planted += [
        document_of(draw, in_other_words(draw, question), language)
        for question in questions
        for _ in range(3)
    ]
    clean = []
    for _ in planted:
        one, other = draw.sample(questions, 2)
        halves = one[: len(one) // 2] + other[len(other) // 2 :]
        clean.append(document_of(draw, halves, language))
    flags, targets = Decontamination(), targets_of(questions)
    ngram, least = flags.decontaminate_ngram, flags.decontaminate_min_words
    index = index_targets(targets, ngram=ngram, least=least, share=0.0)
    found = Finder(index).find(pa.array(planted + clean, pa.large_string()))
    documents = {document for document, _ in found.hits}
    held = [document for document in documents if document < len(planted)]
    assert len(held) >= 0.95 * len(planted)
    assert documents == {*held}
    print(f"{language}: {len(held)} of {len(planted)} found")  # with pytest -s
