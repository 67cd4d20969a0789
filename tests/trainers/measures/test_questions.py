"""Questions of a set: evaluation.jsonl read, prompts as the rows have them, names for scores."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from pipelines.encoding.tokenizer import LoadedTokenizer
from pipelines.tasks.qa import Qa
from schemas.errors import DataError
from tests.tools.question_factory import schema_of, write_qa_set
from tests.tools.tokenizer_factory import trained_tokenizer
from trainers.measures.questions import (
    PromptMaker,
    Question,
    example_numbers,
    read_questions,
    score_answers,
)
from trainers.models.set_tokenizer import open_tokenizer
from trainers.reader import ShardSet

BPE = LoadedTokenizer(trained_tokenizer().to_str().encode())
ASKED = [
    ("Who jumps over the dog?", "The quick brown fox jumps over the lazy dog. " * 9, [], "long"),
    ("Ærø?", "An island, it's called  Ærø.\nThere.", [("Ærø", 24)], "odd"),
    ("What is " + "very " * 40 + "long?", "A question.", [("question", 2)], "asked at length"),
    ("", "Nothing is asked.", [("Nothing", 0)], ""),
]
TASKS = {
    "defaults": Qa(max_question_length=50),
    "cut": Qa(
        bos=True,
        max_question_length=7,
        max_answer_length=5,
        qa_template="{context}\nQ: {question}{{}}A:{answer}",
    ),
}


def written(directory: Path, task: Qa, asked: Sequence = ASKED) -> ShardSet:
    write_qa_set(directory, {"validation": asked}, task, BPE, 120)
    return ShardSet(str(directory))


@pytest.mark.parametrize("name", TASKS)
def test_a_prompt_that_is_asked_is_that_of_the_row(name, tmp_path):
    shards = written(tmp_path / "set", TASKS[name])
    prompts = PromptMaker(shards.schema, open_tokenizer(BPE.json))
    rows = shards.read("validation", np.arange(len(ASKED)))
    found = {
        tuple(ids[:length].tolist())
        for ids, length in zip(rows["input_ids"], rows["prompt_length"], strict=True)
    }
    made = [prompts.prompt(question, context) for question, context, *_ in ASKED]
    assert {tuple(prompt.ids) for prompt in made} == found
    whole = [f"Question: {question} Context: {context} answer:" for question, context, *_ in ASKED]
    lengths = [len(open_tokenizer(BPE.json).encode(t, add_special_tokens=False)) for t in whole]
    if name == "defaults":
        left_out = [length - len(p.ids) for length, p in zip(lengths, made, strict=True)]
        assert [prompt.cut for prompt in made] == left_out and sum(left_out[:3:2]) == sum(left_out)
    assert max(map(len, found)) == 120 - TASKS[name].max_answer_length - 1


def test_what_answers_say():
    schema, tokenizer = schema_of(TASKS["cut"], BPE, 120), open_tokenizer(BPE.json)
    prompts = PromptMaker(schema, tokenizer)
    ids = tokenizer.encode(" the fox", add_special_tokens=False).ids
    assert prompts.text([*ids, schema.special_ids["eos"]]) == "the fox"
    assert prompts.text([]) == ""


def test_questions_by_the_number_in_their_rows(tmp_path):
    shards = written(tmp_path / "set", TASKS["defaults"])
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
        written(tmp_path / "a", TASKS["defaults"], asked=ASKED[1:2]),
        written(tmp_path / "b", TASKS["defaults"], asked=again),
        written(tmp_path / "c", TASKS["defaults"], asked=ASKED[1:2]),
    ]
    questions = read_questions(sets)
    assert len(questions) == 2
    first, second = questions.values()
    assert first.name == "odd" and int(second.name, 16) in questions


def test_a_broken_line_is_named(tmp_path):
    shards = written(tmp_path / "set", TASKS["defaults"])
    with open(tmp_path / "set" / "evaluation.jsonl", "a") as file:
        file.write('{"id": "x"}\n')
    with pytest.raises(DataError, match="evaluation.jsonl: line 5 is not as build_shards"):
        read_questions([shards])


def test_the_version_follows_from_the_questions():
    some = [Question("1", "?", ("gold",)), Question("2", "?", ("silver",))]
    impossible = Question("3", "?", ())
    predictions = {"1": "gold", "2": "", "3": ""}
    assert "HasAns_f1" not in score_answers(some, predictions, "auto")
    found = score_answers([*some, impossible], predictions, "auto")
    assert (found["NoAns_exact"], found["HasAns_exact"], found["total"]) == (100.0, 50.0, 3)
