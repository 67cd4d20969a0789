"""Questions of a dataset are read from evaluation.jsonl; SQuAD's scores of cases worked by hand."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.tools.question_factory import write_qa_set
from tests.tools.tokenizer_factory import trained_tokenizer
from textmill.pipelines.encoding.tokenizer import LoadedTokenizer
from textmill.pipelines.tasks.qa import Qa
from textmill.schemas.errors import DataError
from textmill.trainers.metrics.squad_scores import best_scores, f1, normalize, squad_scores
from textmill.trainers.reader import ShardSet
from textmill.trainers.tasks.qa import score_answers
from textmill.trainers.tasks.questions import Question, example_numbers, read_questions

BPE = LoadedTokenizer(trained_tokenizer().to_str().encode())
ASKED = [
    ("Which animal jumps?", "The quick brown fox jumps over the lazy dog. " * 9, [], "long"),
    ("Ærø?", "An island, it's called  Ærø.\nThere.", [("Ærø", 24)], "odd"),
    ("Is this " + "very " * 40 + "long?", "A question.", [("question", 2)], "asked at length"),
    ("", "No question.", [("No", 0)], ""),
]
TASK = Qa(max_question_length=50)
# gold answers, prediction, (exact, F1) in version 1.1, in version 2.0
CASES = {
    "the same": (["Denver Broncos"], "Denver Broncos", (1, 1), (1, 1)),
    "case": (["Denver Broncos"], "dENVER bRONCOS", (1, 1), (1, 1)),
    "an article before": (["the Denver Broncos"], "Denver Broncos", (1, 1), (1, 1)),
    "articles inside": (["out of the blue"], "out of a blue", (1, 1), (1, 1)),
    "an article inside a word stays": (["theatre"], "atre", (0, 0), (0, 0)),
    "punctuation": (["$1,000.50!"], "100050", (1, 1), (1, 1)),
    "punctuation joins words": (["well-known"], "well known", (0, 0), (0, 0)),
    "an article set free by punctuation": (['"a" dog'], "dog", (1, 1), (1, 1)),
    "white space": (["New  York\n"], " New York", (1, 1), (1, 1)),
    "punctuation that is not ASCII stays": (["“Roar”"], "Roar", (0, 0), (0, 0)),
    # 1 of 2 words is right, 1 of 2 was found
    "half of the words": (["Super Bowl"], "Super Sunday", (0, 0.5), (0, 0.5)),
    # 2 of 3 right, 2 of 2 found: 2 * 2/3 / (5/3)
    "a word too many": (["Santa Clara"], "in Santa Clara", (0, 0.8), (0, 0.8)),
    # "x x y" and "x z x x": 2 shared; 2/4 right, 2/3 found
    "words that come twice": (["x x y"], "x z x x", (0, 4 / 7), (0, 4 / 7)),
    "no word shared": (["gold"], "silver", (0, 0), (0, 0)),
    "the best of several golds": (["gold", "golden 50", "the Golden"], "golden", (1, 1), (1, 1)),
    # against "1 2": 2/4 right, 2/2 found = 2/3; against "3 4 5": 2/4, 2/3 = 4/7
    "F1 of the best gold": (["1 2", "3 4 5"], "1 2 3 4", (0, 2 / 3), (0, 2 / 3)),
    "nothing said": (["gold"], "", (0, 0), (0, 0)),
    "only an article said": (["gold"], "the", (0, 0), (0, 0)),
    # Both are empty: 1.1 finds no shared word, 2.0 says that both agree.
    "empty on both sides": (["the"], "a!", (1, 0), (1, 1)),
    # 2.0 leaves the gold that is empty once normalized out.
    "an empty gold beside another": (["The", "gold"], "", (1, 0), (0, 0)),
}


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
    with pytest.raises(DataError, match="evaluation.jsonl: line 5 is not in the format of build_"):
        read_questions([shards])


def test_the_version_follows_from_the_questions():
    some = [Question("1", "?", ("gold",)), Question("2", "?", ("silver",))]
    impossible = Question("3", "?", ())
    predictions = {"1": "gold", "2": "", "3": ""}
    assert "HasAns_f1" not in score_answers(some, predictions, "auto")
    found = score_answers([*some, impossible], predictions, "auto")
    assert (found["NoAns_exact"], found["HasAns_exact"], found["total"]) == (100.0, 50.0, 3)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("version", ["1.1", "2.0"])
def test_scores_by_hand(name, version):
    golds, predicted, old, new = CASES[name]
    found = best_scores(golds, predicted, version)
    assert found == pytest.approx(new if version == "2.0" else old)


def test_questions_without_an_answer():
    assert best_scores([], "", "2.0") == (1, 1)
    assert best_scores([], "the", "2.0") == (1, 1)
    assert best_scores([], "gold", "2.0") == (0, 0)
    with pytest.raises(ValueError):
        best_scores([], "gold", "1.1")


def test_normalized():
    assert normalize("The  Panthers' (defense)!") == "panthers defense"
    assert f1("a b c d", "c e", "1.1") == pytest.approx(0.4)


def test_a_question_whose_answer_is_an_article_has_an_answer():
    """As in SQuAD's script, though "The" is empty once normalized."""
    found = squad_scores({"1": ["The"], "2": []}, {"1": "the", "2": "gold"}, "2.0")
    assert (found["HasAns_exact"], found["HasAns_total"]) == (100.0, 1)
    assert (found["NoAns_exact"], found["NoAns_total"]) == (0.0, 1)


def test_a_set_of_questions():
    golds = {"1": ["gold"], "2": [], "3": ["Santa Clara"], "4": []}
    predictions = {"1": "the gold", "2": "", "3": "in Santa Clara", "4": "silver"}
    assert squad_scores(golds, predictions, "2.0") == {
        **{"exact": 50.0, "f1": pytest.approx(70.0), "total": 4},
        **{"HasAns_exact": 50.0, "HasAns_f1": pytest.approx(90.0), "HasAns_total": 2},
        **{"NoAns_exact": 50.0, "NoAns_f1": 50.0, "NoAns_total": 2},
    }


def test_what_a_missing_prediction_costs():
    golds = {"1": ["gold"], "2": ["silver"]}
    assert squad_scores(golds, {"1": "gold"}, "1.1") == {"exact": 50.0, "f1": 50.0, "total": 2}
    assert squad_scores(golds, {"1": "gold"}, "2.0")["exact"] == 100.0
    assert squad_scores({"1": ["gold"]}, {}, "2.0") == {"exact": 0.0, "f1": 0.0, "total": 0}
