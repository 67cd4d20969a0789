"""Questions of a set: evaluation.jsonl read, names for scores."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from pipelines.encoding.tokenizer import LoadedTokenizer
from pipelines.tasks.qa import Qa
from schemas.errors import DataError
from tests.tools.question_factory import write_qa_set
from tests.tools.tokenizer_factory import trained_tokenizer
from trainers.metrics.questions import (
    Question,
    example_numbers,
    read_questions,
    score_answers,
)
from trainers.reader import ShardSet

BPE = LoadedTokenizer(trained_tokenizer().to_str().encode())
ASKED = [
    (
        "Which animal jumps?",
        "The quick brown fox jumps over the lazy dog. " * 9,
        [],
        "long",
    ),
    ("Ærø?", "An island, it's called  Ærø.\nThere.", [("Ærø", 24)], "odd"),
    ("Is this " + "very " * 40 + "long?", "A question.", [("question", 2)], "asked at length"),
    ("", "No question.", [("No", 0)], ""),
]
TASK = Qa(max_question_length=50)


def written(directory: Path, task: Qa, asked: Sequence = ASKED) -> ShardSet:
    write_qa_set(directory, {"validation": asked}, task, BPE, 120)
    return ShardSet(str(directory))


def test_questions_by_the_number_in_their_rows(tmp_path):
    shards = written(tmp_path / "set", TASK)
    questions = read_questions([shards])
    rows = shards.read("validation", np.arange(len(ASKED)))
    names = {questions[number].name for number in example_numbers(rows["example_id"])}
    [nameless] = names - {"long", "odd", "asked at length"}
    assert len(nameless) == 16 and int(nameless, 16) in questions
    [odd] = [question for question in questions.values() if question.name == "odd"]
    assert odd == Question("odd", "Ærø?", ("Ærø",))
    assert example_numbers(np.array([[1, 2]], np.uint32)) == [4294967298]


def test_two_sets_with_one_id(tmp_path):
    again = [("Another?", *ASKED[1][1:])]
    sets = [
        written(tmp_path / "a", TASK, asked=ASKED[1:2]),
        written(tmp_path / "b", TASK, asked=again),
        written(tmp_path / "c", TASK, asked=ASKED[1:2]),
    ]
    questions = read_questions(sets)
    assert len(questions) == 2
    first, second = questions.values()
    assert first.name == "odd" and int(second.name, 16) in questions


@pytest.mark.parametrize(
    "line", [b'{"id": "x"}', b"\xff", b'{"id": ' + b"[" * 99_999, rb'{"id": "\ud800"}']
)
def test_a_broken_line_is_named(tmp_path, line):
    shards = written(tmp_path / "set", TASK)
    with open(tmp_path / "set" / "evaluation.jsonl", "ab") as file:
        file.write(line + b"\n")
    with pytest.raises(
        DataError, match="evaluation.jsonl: line 5 is not in the format of build_shards"
    ):
        read_questions([shards])


def test_the_version_follows_from_the_questions():
    some = [Question("1", "?", ("gold",)), Question("2", "?", ("silver",))]
    impossible = Question("3", "?", ())
    predictions = {"1": "gold", "2": "", "3": ""}
    assert "HasAns_f1" not in score_answers(some, predictions, "auto")
    found = score_answers([*some, impossible], predictions, "auto")
    assert (found["NoAns_exact"], found["HasAns_exact"], found["total"]) == (100.0, 50.0, 3)
