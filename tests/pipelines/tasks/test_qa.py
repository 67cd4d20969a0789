"""Question answering: rows worked by hand, and every answer back from the rows that teach it."""

import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from tests.tools.corpus_factory import write_lines
from tests.tools.places import DATA
from tests.tools.question_factory import documents_of, said, schema_of, shard_of, write_qa_set
from tests.tools.read_sources import read_all
from tests.tools.shard_factory import replace_file, tokenizer_json
from tests.tools.task_rows import rows_of
from tests.tools.tokenizer_factory import trained_tokenizer
from textmill.pipelines.build_shards import main
from textmill.pipelines.encoding.tokenizer import LoadedTokenizer, load_tokenizer
from textmill.pipelines.inspection.checks.row_checks import row_problems
from textmill.pipelines.inspection.checks.set_check import verify_dataset
from textmill.pipelines.shards.steps import evaluation_of
from textmill.pipelines.tasks.qa import Qa
from textmill.pipelines.tasks.questions import QuestionTemplate
from textmill.schemas.errors import DataError, UsageError, as_flags

WORDS = LoadedTokenizer(tokenizer_json(60))  # <s> <pad> </s> <unk> <mask> w5 w6 ...
BPE = LoadedTokenizer(trained_tokenizer().to_str().encode())
BY_HAND = Qa(
    qa_template=QuestionTemplate("w5 {question} w6 {context} w7 {answer}"),
    qa_form="prefix",
    max_question_length=3,
    max_answer_length=2,
    window_stride=2,
)
WITH_BOS = replace(BY_HAND, bos=True)
LONG = ("w10 w11 w12 w13", "w20 w21 w22 w23 w24 w25", [("w23 w24", 12)], "a")
SHORT = ("w10", "w30", [("w30", -1), ("w30", 0)], "b")
IMPOSSIBLE = ("w40", "w41 w42", [], "c")


def made(questions, task=BY_HAND, tokenizer=WORDS, max_length=14, split="train"):
    return shard_of(documents_of(questions), task, tokenizer, max_length, split)


def shard_and_rows(questions, **how):
    shard, rejects = made(questions, **how)
    assert shard is not None and rejects == ()
    rows, schema = rows_of(shard), shard.maker.schema
    evaluated = np.array([int(name, 16) for name, _ in evaluation_of(shard.kept)], np.uint64)
    split, suffix = how.get("split", "train"), (schema.special_ids["eos"],)
    assert not row_problems(rows, schema, split=split, suffix=suffix, evaluation=evaluated)
    counts = shard.statistics
    due = counts.tokens + counts.tokens_repeated + counts.specials_added - counts.tokens_truncated
    assert due == counts.tokens_in_rows == np.count_nonzero(rows["segment_ids"])
    return shard, rows


def test_a_training_row_by_hand():
    # The last of the context is the answer, of one token, which leaves room for the whole context.
    shard, rows = shard_and_rows([(LONG[0], LONG[1], [("w25", 20)], "a")])
    assert {name: values.tolist() for name, values in rows.items()} == {
        "input_ids": [[5, 10, 11, 12, 6, 20, 21, 22, 23, 24, 25, 7, 25, 2]],
        "segment_ids": [[1] * 14],
        "loss_weights": [[0] * 12 + [1, 1]],
        "prefix_mask": [[1] * 12 + [0, 0]],
        "prompt_length": [0],
        "example_id": [[0, 0]],
    }
    counts = shard.statistics
    # Three tokens of the template, four of the question, six of the context, one of the answer.
    assert (counts.documents, counts.tokens, counts.specials_added) == (1, 14, 1)
    assert (counts.tokens_truncated, counts.tokens_repeated) == (1, 0)  # w13


def test_every_window_that_holds_the_answer_is_a_row():
    # Questions of a different id are others, and equal ones are not.
    shard, _ = shard_and_rows([LONG, LONG, (*LONG[:3], "another id")])
    assert (shard.statistics.documents, shard.statistics.dropped["duplicates"]) == (2, 1)
    shard, rows = shard_and_rows([LONG])
    # An answer of two tokens leaves room for five: windows every two, of which both have w23 w24.
    assert sorted(rows["input_ids"].tolist()) == [
        [5, 10, 11, 12, 6, 20, 21, 22, 23, 24, 7, 23, 24, 2],
        [5, 10, 11, 12, 6, 22, 23, 24, 25, 7, 23, 24, 2, 1],
    ]
    counts = shard.statistics
    # The second window has one new token, w25; the other eleven were there before.
    assert (counts.tokens, counts.tokens_repeated, counts.tokens_truncated) == (15, 11, 1)
    assert (counts.documents, counts.segments, counts.specials_added) == (1, 2, 2)


def test_an_evaluation_row_leaves_room_for_the_longest_answer():
    shard, rows = shard_and_rows([LONG], split="validation")
    assert rows["input_ids"].tolist() == [[5, 10, 11, 12, 6, 20, 21, 22, 23, 24, 7, 23, 24, 2]]
    assert rows["prompt_length"].tolist() == [11]
    assert shard.statistics.tokens_truncated == 2  # w13 and w25
    ((name, line),) = evaluation_of(shard.kept)
    high, low = rows["example_id"][0].tolist()
    assert name == f"{high:08x}{low:08x}"
    assert json.loads(line) == {
        "id": "a",
        "question": LONG[0],
        "answers": ["w23 w24"],
        "is_impossible": False,
    }


def test_bad_answers_are_rejected_and_long_ones_cut_where_they_are_scored():
    long = ("w10", "w20 w21 w22", [("w20 w21 w22", 0)], "long")
    other = ("w40", "w41 w42", [("w41", 1)], "other")
    shard, rejects = made([long, SHORT, other])
    assert {(reject.reason, reject.path, reject.offset) for reject in rejects} == {
        ("answer_too_long", "questions.jsonl", None),
        ("answer_not_at_offset", "questions.jsonl", None),
    }
    details = sorted(as_flags(reject.detail) for reject in rejects)
    assert details[0] == "question 'long': its answer has 3 tokens, more than --max_answer_length"
    assert details[1].startswith("question 'other'")
    assert shard is not None and shard.statistics.documents == 1
    shard, rows = shard_and_rows([long], split="validation")
    assert rows["input_ids"].tolist() == [[5, 10, 6, 20, 21, 22, 7, 20, 21, 2, 1, 1, 1, 1]]
    assert json.loads(evaluation_of(shard.kept)[0][1])["answers"] == ["w20 w21 w22"]
    assert shard.statistics.tokens_truncated == 1


def test_questions_without_an_answer_learn_that_it_ends():
    shard, rows = shard_and_rows([SHORT, IMPOSSIBLE])
    # w5 w10 w6 w30 w7 w30 </s>, w5 w40 w6 w41 w42 w7 </s>: both in one row, whole.
    assert sorted(said(rows, WORDS)) == [(b"w5w10w6w30w7", b"w30"), (b"w5w40w6w41w42w7", b"")]
    assert len(rows["input_ids"]) == 1 and rows["loss_weights"].sum() == 3
    shard, rows = shard_and_rows([("w40", " ".join(["w41"] * 14), [], "c")])
    # A row has room for nine: windows every two, until the fourth reaches the end.
    prompts = sorted(prompt for prompt, _ in said(rows, WORDS))
    assert prompts == [b"w5w40w6" + b"w41" * tokens + b"w7" for tokens in (9, 9, 9, 8)]
    shard, rows = shard_and_rows([SHORT, IMPOSSIBLE], split="validation")
    lines = [json.loads(line) for _, line in evaluation_of(shard.kept)]
    assert {line["id"]: line["is_impossible"] for line in lines} == {"b": False, "c": True}
    assert {line["id"]: line["answers"] for line in lines} == {"b": ["w30", "w30"], "c": []}


def test_bos_packing_none_and_the_causal_form():
    task = replace(WITH_BOS, packing="none", qa_form="causal")
    shard, rows = shard_and_rows([SHORT, IMPOSSIBLE], task=task)
    assert "prefix_mask" not in rows
    assert sorted(rows["input_ids"].tolist()) == [
        [0, 5, 10, 6, 30, 7, 30, 2] + [1] * 6,
        [0, 5, 40, 6, 41, 42, 7, 2] + [1] * 6,
    ]
    assert rows["prompt_length"].tolist() == [0, 0]
    assert shard.statistics.specials_added == 4


def test_tasks_of_questions_that_cannot_work_are_refused():
    cases = {
        "--max_answer_length=0: from 1 to 65535": lambda: Qa(max_answer_length=0),
        f"--window_stride={1 << 64}: from 1 to": lambda: Qa(window_stride=1 << 64),
        "it must end with {answer}": lambda: Qa(
            qa_template=QuestionTemplate("{answer} {question} {context}")
        ),
        "no eos token, which ends an answer": lambda: schema_of(BY_HAND, NO_SPECIALS, 20),
        "the tokenizer has no bos token: drop": lambda: schema_of(WITH_BOS, NO_BOS, 20),
        "4 tokens of the template, --max_question_length=3 and --max_answer_length=2: use": (
            lambda: schema_of(BY_HAND, WORDS, 9)
        ),
    }
    for expected, wrong in cases.items():
        with pytest.raises(UsageError) as error:
            wrong()
        assert expected in str(error.value)
    assert schema_of(BY_HAND, WORDS, 10).parameters["qa_template"] == str(BY_HAND.qa_template)


def _without(*tokens):
    config = json.loads(tokenizer_json(60))
    config["post_processor"] = None
    config["added_tokens"] = [t for t in config["added_tokens"] if t["content"] not in tokens]
    for number, token in enumerate(tokens):
        config["model"]["vocab"][f"x{number}"] = config["model"]["vocab"].pop(token)
    return LoadedTokenizer(json.dumps(config).encode())


NO_BOS, NO_SPECIALS = _without("<s>"), _without("<s>", "</s>")
WORD = st.sampled_from(["Ærø", "the", "fox", "12", "a", "jump", "🙂", "中文", "it's", "\n", "x,"])


@st.composite
def questions(draw):
    words = draw(st.lists(WORD, min_size=1, max_size=40))
    context = draw(st.sampled_from([" ", "  ", ""])).join(words)
    answers = []
    for _ in range(draw(st.integers(0, 2))):
        start = draw(st.integers(0, len(context) - 1))
        stop = draw(st.integers(start + 1, min(start + 8, len(context))))
        if context[start:stop].strip():
            answers.append((context[start:stop], start))
    return " ".join(draw(st.lists(WORD, min_size=1, max_size=9))), context, answers


@given(
    st.lists(questions(), min_size=1, max_size=5),
    st.integers(90, 130),
    st.integers(1, 40),
    st.sampled_from(["train", "validation"]),
)
def test_every_answer_comes_back(asked, max_length, stride, split):
    task = Qa(max_question_length=20, window_stride=stride, qa_form="prefix")
    named = [(*question, f"id {n}") for n, question in enumerate(asked)]
    shard, rows = shard_and_rows(
        named, task=task, tokenizer=BPE, max_length=max_length, split=split
    )
    found = list(said(rows, BPE))
    assert len(found) == shard.statistics.segments and len(found) >= len(named)
    for question, context, answers, _ in named:
        cut = b"".join(BPE.token_bytes[i] for i in ORACLE.encode(" " + question).ids[:20])
        prompt = b"Question:" + cut + b" Context: "
        answer = answers[0][0] if answers else ""
        learned = (" " + answer).encode() if answers else b""
        own = [p for p, a in found if p.startswith(prompt) and a == learned]
        held = [p[len(prompt) - 1 : -len(b" answer:")].decode("utf-8", "replace") for p in own]
        assert held and all(p.endswith(b" answer:") for p in own)
        assert any(part.strip("\ufffd") in " " + context for part in held)
        if split == "train":
            assert any(answer in part for part in held)


ORACLE = Tokenizer.from_str(BPE.json.decode())
ORACLE.post_processor = None  # pyright: ignore[reportAttributeAccessIssue]


def test_two_evaluated_questions_of_one_id_are_an_error(tokenizer_path, tmp_path):
    path, output = tmp_path / "asked.jsonl", tmp_path / "set"
    record = {"question": "Who?", "context": "Ann", "answers": [], "id": "twice"}
    write_lines(path, [record, record | {"question": "Who else?"}])
    flags = ["--task=qa", f"--tokenizer={tokenizer_path}", f"--validation_input={path}"]
    with pytest.raises(DataError, match="two different evaluation documents have the id 'twice'"):
        main([*flags, f"--output={output}"])
    write_lines(path, [record, record])
    main([*flags, f"--test_input={path}", f"--output={output}"])
    assert verify_dataset(str(output)).problems == []
    assert len((output / "evaluation.jsonl").read_text().splitlines()) == 1


def test_verify_misses_a_line_and_a_row(tmp_path):
    directory = tmp_path / "set"
    asked = {"train": [LONG], "validation": [SHORT, IMPOSSIBLE]}
    write_qa_set(directory, asked, BY_HAND, WORDS, 14)
    content = (directory / "evaluation.jsonl").read_text()
    name, other = json.loads(content.splitlines()[0])["example_id"], "f" * 16
    assert not [p for p in verify_dataset(str(directory)).problems if "evaluation" in p]
    replace_file(directory, "evaluation.jsonl", content.replace(name, other).encode())
    problems = [p for p in verify_dataset(str(directory)).problems if "evaluation" in p]
    assert f"example_id {name} has no line in evaluation.jsonl" in problems[0]
    assert problems[1:] == [f"evaluation.jsonl: no row belongs to {other}"]


@pytest.fixture(scope="module")
def gpt2():
    if not DATA.is_dir():
        pytest.skip("../shared/data is not there")
    return load_tokenizer(DATA / "tokenizers/gpt2")


def squad(name, folder):
    """The questions of a real file, as read."""
    path = folder / f"{name}.json"
    packed = (DATA / f"squad/{name}.json.zst").read_bytes()
    path.write_bytes(zstandard.ZstdDecompressor().decompress(packed, 1 << 28))
    (documents,) = [found for found in read_all(path, roles=Qa().roles()) if len(found.text)]
    return documents


@pytest.mark.slow
def test_every_answer_of_squad_comes_back(gpt2, tmp_path):
    documents = squad("train-v1.1", tmp_path)
    shard, rejects = shard_of(documents, Qa(), gpt2, 384, "train")
    assert shard is not None
    rows = rows_of(shard)
    refused = {reject.detail.split("'")[1] for reject in rejects}
    assert Counter(reject.reason for reject in rejects) == {"answer_too_long": 30}
    asked = [
        (columns["question"], columns["answers"][0]["text"])
        for columns in documents.columns.select(["question", "answers", "id"]).to_pylist()
        if columns["id"] not in refused
    ]
    counts = shard.statistics
    assert (len(asked), counts.documents, counts.dropped) == (87_569, 87_569, {})
    assert counts.segments == 88_018 and counts.rows == 42_709
    oracle = Tokenizer.from_str(gpt2.json.decode())
    encodings = oracle.encode_batch_fast([" " + question for question, _ in asked])
    expected, found = Counter(), Counter()
    for encoding, (_, answer) in zip(encodings, asked, strict=True):
        question = b"".join(gpt2.token_bytes[i] for i in encoding.ids[:64])
        expected[question, (" " + answer).encode()] += 1
    for prompt, learned in said(rows, gpt2):
        question, context, last = prompt.partition(b" Context:")
        found[question.removeprefix(b"Question:"), learned] += 1
        assert learned[1:] in last.removesuffix(b" answer:")
    assert found.keys() == expected.keys() and not expected - found
    assert (found - expected).total() == counts.segments - len(asked) == 449


@pytest.mark.slow
def test_part_by_part_is_what_the_whole_text_encodes_to(gpt2, tmp_path):
    documents = squad("dev-v1.1", tmp_path)
    task = Qa(max_question_length=512, max_answer_length=512)
    shard, _ = shard_of(documents, task, gpt2, 2304, "validation")
    assert shard is not None
    rows = rows_of(shard)
    used = (rows["segment_ids"] > 0).sum(axis=1)
    ids = [row[: n - 1].tolist() for row, n in zip(rows["input_ids"], used, strict=True)]
    texts = [
        f"Question: {q['question']} Context: {q['context']} answer: {q['answers'][0]['text']}"
        for q in documents.columns.to_pylist()
    ]
    oracle = Tokenizer.from_str(gpt2.json.decode())
    whole = [encoding.ids for encoding in oracle.encode_batch_fast(texts)]
    assert len(ids) == 10_570
    differ = Counter(map(tuple, ids))
    differ.subtract(map(tuple, whole))
    assert not any(differ.values())
