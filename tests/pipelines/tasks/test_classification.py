"""Rows of classification: labels, cut texts, pairs, and what evaluation is scored against."""

import json
from collections import Counter

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import processors

from tests.tools.task_rows import make_rows
from tests.tools.tokenizer_factory import strings, trained_tokenizer
from textmill.pipelines.encoding.tokenizer import LoadedTokenizer
from textmill.pipelines.inspection.checks.row_checks import row_problems
from textmill.pipelines.rows.evaluation import evaluation_file
from textmill.pipelines.shards.steps import evaluation_of
from textmill.pipelines.tasks.class_names import ClassNames
from textmill.pipelines.tasks.classification import (
    Classification,
    fill_form,
    ids_between,
    longest_first,
    pair_form,
)
from textmill.schemas.errors import DataError, UsageError

REFERENCE = trained_tokenizer()
TOKENIZER = LoadedTokenizer(REFERENCE.to_str().encode())
TASK = "--task=classification"
TEXTS = ["The quick brown fox", "jumps over", "the lazy dogs' beds", "who's 12 years old?"]
LONG = "The quick brown fox, who's 12 years old, doesn't jump over the lazy dogs' beds."


def ids_of(text):
    return REFERENCE.encode(text, add_special_tokens=False).ids


def texts_of(columns):
    """Each row's ids without padding, with its label."""
    for ids, segments, label in zip(
        columns["input_ids"], columns["segment_ids"], columns["label"], strict=True
    ):
        yield tuple(ids[segments == 1].tolist()), int(label)


def test_a_document_is_a_row_with_its_label():
    labels = ["neg", "pos", "pos", "neg"]
    flags = [TASK, "--classes=neg,pos", "--max_length=20"]
    made = make_rows(TOKENIZER, {"text": TEXTS, "label": labels}, *flags)
    columns = made.columns["train"]
    ids = [(0, *ids_of(text), 2) for text in TEXTS]
    assert set(texts_of(columns)) == set(zip(ids, [0, 1, 1, 0], strict=True))
    assert [(f.name, f.dtype, f.shape) for f in made.schema.features] == [
        ("example_id", "uint32", (2,)),
        ("input_ids", "uint16", (20,)),
        ("label", "uint8", ()),
        ("segment_ids", "uint8", (20,)),
    ]
    assert not columns["example_id"].any(), "rows that are trained on name no line"
    statistics = made.shards["train"].statistics
    assert statistics.labels == {"neg": 2, "pos": 2}
    assert statistics.tokens == sum(len(ids_of(text)) for text in TEXTS)
    assert statistics.tokens + statistics.specials_added == statistics.tokens_in_rows
    assert (statistics.specials_added, statistics.tokens_truncated) == (8, 0)
    assert row_problems(columns, made.schema, prefix=(0,), suffix=(2,)) == []


def test_head_and_tail_of_512_are_as_published():
    task = Classification(classes=ClassNames.parse("a,b"), truncation="head_tail")
    head = task._head(np.array([[600], [500]]), np.array([[510], [500]]))
    assert head.tolist() == [[128], [500]], "Sun et al.: 128 of the start, 382 of the end"


def test_pairs_are_those_of_tokenizers_and_broken_ones_are_named():
    reference, tokenizer = loaded(processors.BertProcessing(("</s>", 2), ("<s>", 0)))
    pairs = TEXTS[1:] + [LONG]
    fields = {"text": TEXTS, "text_pair": pairs, "label": ["a", "b", "a", "b"]}
    flags = [TASK, "--classes=a,b", "--max_length=24", "--text_pair_field=other"]
    made = make_rows(tokenizer, fields, *flags)
    columns = made.columns["train"]
    reference.enable_truncation(24, strategy="longest_first")
    expected = []
    for first, second, label in zip(*fields.values(), strict=True):
        encoding = reference.encode(first, second)
        rest = 24 - len(encoding.ids)
        ids, types = encoding.ids + [1] * rest, encoding.type_ids + [0] * rest
        expected.append((ids, types, "ab".index(label)))
    names = ("input_ids", "token_type_ids", "label")
    found = zip(*(columns[name].tolist() for name in names), strict=True)
    assert sorted(found) == sorted(expected)
    assert columns["token_type_ids"].any()
    assert made.shards["train"].statistics.tokens_truncated > 0
    assert row_problems(columns, made.schema, prefix=(0,), suffix=(2,)) == []
    broken = {name: values.copy() for name, values in columns.items()}
    [place] = np.flatnonzero(columns["segment_ids"][:, -1] == 0)[:1]
    broken["label"][1] = 2
    broken["token_type_ids"][place, 23] = 1
    assert {(p.row, p.message) for p in row_problems(broken, made.schema)} == {
        (1, "label is 2, but there are 2 classes, from 0 on"),
        (place, "token_type_ids[23] is 1 in padding, not 0"),
    }


# How many tokens of the start are kept, of all that are.
CUTS = {"head": lambda room: room, "tail": lambda room: 0, "head_tail": lambda n: (n + 2) // 4}


@settings(max_examples=30)
@given(
    st.lists(st.tuples(st.sampled_from(TEXTS + [LONG, " "]), st.integers(0, 2)), min_size=1),
    st.integers(3, 40),
    st.sampled_from(list(CUTS)),
)
@example([(LONG, 0), ("the", 1)], 12, "head")
@example([(LONG, 0), ("the", 1)], 12, "tail")
@example([(LONG, 0), ("the", 1)], 7, "head_tail")
def test_what_is_too_long_is_cut_and_counted(documents, length, truncation):
    fields = {"text": [t for t, _ in documents], "label": [str(n) for _, n in documents]}
    flags = [TASK, "--classes=0,1,2", f"--max_length={length}", f"--truncation={truncation}"]
    made = make_rows(TOKENIZER, fields, *flags)
    statistics, columns = made.shards["train"].statistics, made.columns["train"]
    assert statistics.documents == len(set(documents)) == len(columns["label"])
    expected, lost = Counter(), 0
    for text, label in set(documents):
        ids = ids_of(text)
        head, excess = CUTS[truncation](length - 2), max(len(ids) - (length - 2), 0)
        kept = ids[:head] + ids[head + excess :]
        expected[(0, *kept, 2), label] += 1
        lost += len(ids) - len(kept)
    assert Counter(texts_of(columns)) == expected and statistics.tokens_truncated == lost
    assert statistics.dropped.get("duplicates", 0) == len(documents) - len(set(documents))
    due = statistics.tokens + statistics.specials_added - statistics.tokens_truncated
    assert due == statistics.tokens_in_rows == int((columns["segment_ids"] > 0).sum())
    assert list(statistics.labels.values()) == np.bincount(columns["label"], minlength=3).tolist()


def test_a_label_that_is_no_class_is_refused():
    fields = {"text": TEXTS, "label": ["a", "c", "b", "C\n"], "id": ["1", "2", "3", ""]}
    made = make_rows(TOKENIZER, fields, TASK, "--classes=a,b")
    assert [(r.reason, r.detail) for r in made.routed.rejects] == [
        ("unknown_label", "id 2: label 'c' is not one of the classes a, b"),
        ("unknown_label", "\"who's 12 years old?\": label 'C\\n' is not one of the classes a, b"),
    ]
    assert made.shards["train"].statistics.labels == {"a": 1, "b": 1}
    assert made.routed.dropped == {"unknown_label": 2}


def test_classes_have_names_of_their_own():
    flags = [TASK, '--classes=["0", "1"]', "--class_names=negative,positive", "--max_length=30"]
    fields = {"text": TEXTS, "label": ["0", "1", "1", "negative"], "id": ["a", "b", "c", "d"]}
    made = make_rows(TOKENIZER, fields, *flags, splits="validation:1")
    parameters = made.schema.parameters
    assert (parameters["classes"], parameters["labels"]) == (["negative", "positive"], ["0", "1"])
    assert [(r.reason, r.detail) for r in made.routed.rejects] == [
        ("unknown_label", "id d: label 'negative' is not one of the classes 0, 1")
    ]
    assert sorted(label for _, label in texts_of(made.columns["validation"])) == [0, 1, 1]
    assert made.shards["validation"].statistics.labels == {"negative": 1, "positive": 2}
    content = evaluation_file(evaluation_of(made.shards["validation"].kept), ids_differ=False)
    lines = [json.loads(line) for line in content["evaluation.jsonl"].splitlines()]
    assert {line["id"]: line["label"] for line in lines} == {
        "a": "negative",
        "b": "positive",
        "c": "positive",
    }


def test_the_same_text_is_in_one_split_whatever_its_label():
    texts = [f"{text} {number}" for text in TEXTS for number in range(10)]
    fields = {"text": texts * 2, "label": ["a"] * 40 + ["b"] * 40}
    flags = [TASK, "--classes=a,b", "--max_length=30"]
    made = make_rows(TOKENIZER, fields, *flags, splits="train:0.5,validation:0.5")
    for columns in made.columns.values():
        ids = [text for text, _ in texts_of(columns)]
        assert len(ids) == 2 * len(set(ids)) > 0


def test_rows_that_are_evaluated_name_their_line():
    names = ["7", 'quote " and \\', "ø\n", ""]
    flags = [TASK, '--classes=["no, not", "\\"yes\\""]', "--max_length=30"]
    labels = ["no, not", '"yes"', "no, not", '"yes"']
    fields = {"text": TEXTS, "label": labels, "id": names}
    made = make_rows(TOKENIZER, fields, *flags, splits="validation:1")
    content = evaluation_file(evaluation_of(made.shards["validation"].kept), ids_differ=False)
    lines = [json.loads(line) for line in content["evaluation.jsonl"].splitlines()]
    by_id = {line["example_id"]: line for line in lines}
    columns = made.columns["validation"]
    found = set()
    for (high, low), (ids, label) in zip(
        columns["example_id"].tolist(), texts_of(columns), strict=True
    ):
        line = by_id[f"{high:08x}{low:08x}"]
        assert line["label"] == ["no, not", '"yes"'][label]
        text = TEXTS[names.index(line["id"])]
        assert ids == (0, *ids_of(text), 2)
        found.add(line["id"])
    assert found == set(names)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--classes=pos"], "at least two classes"),
        (["--classes=pos,neg,pos"], "a name occurs twice"),
        (["--classes=pos,,neg"], "none of them empty"),
        (["--classes=[1, 2]"], "none of them empty"),
        (["--classes=[pos"], "not a JSON list"),
        ([r'--classes=["\ud800", "b"]'], "not a JSON list .*surrogates not allowed"),
        (["--class_names=pos"], "--class_names=pos: at least two classes"),
        (["--class_names=pos,pos"], "--class_names=pos,pos: a name occurs twice"),
        (
            ["--classes=0,1,2", "--class_names=neg,pos"],
            r"--class_names=neg,pos: 2 names for 3 labels \(0, 1, 2\): give one name for each, in",
        ),
        (["--classes=a,b", "--max_length=2"], "no room for text.*use at least 3"),
        (["--classes=a,b", "--max_length=5", "--text_pair_field=b"], "use at least 6"),
        (["--truncation=middle", "--classes=a,b"], "--truncation=middle: choose one of "),
        (["--packing=none", "--classes=a,b"], "--packing is a flag of --task=chat.clm"),
    ],
)
def test_flags_of_classification_that_cannot_work(flags, message):
    with pytest.raises(UsageError, match=message):
        make_rows(TOKENIZER, {"text": ["a"], "label": ["b"]}, TASK, *flags)


def test_classes_that_are_not_given_are_asked_for():
    asked = []

    def values_of(role):
        asked.append(role.field)
        return ("no", "yes")

    task = Classification(label_field="sentiment")
    assert task.complete(values_of).classes == ("no", "yes") and asked == ["sentiment"]
    given_ = Classification(classes=ClassNames.parse("b,a"))
    assert given_.complete(values_of) is given_ and len(asked) == 1
    named = Classification(class_names=ClassNames.parse("negative,positive")).complete(values_of)
    assert (named.classes, named.names) == (("no", "yes"), ("negative", "positive"))
    with pytest.raises(UsageError, match=r"3 names for 2 labels \(no, yes\): give one name"):
        Classification(class_names=ClassNames.parse("a,b,c")).complete(values_of)
    with pytest.raises(UsageError, match="the only label in the inputs is 'no'"):
        task.complete(lambda role: ("no",))


def test_lines_of_evaluation_have_one_text_and_one_id_where_these_are_scored():
    lines = [("0" * 16, b'{"id": "1"}'), ("1" * 16, b'{"id": "1"}')]
    assert len(evaluation_file(lines, ids_differ=False)["evaluation.jsonl"].splitlines()) == 2
    with pytest.raises(DataError, match="the id '1'"):
        evaluation_file(lines, ids_differ=True)
    twice = [("0" * 16, b'{"id": "test-1"}'), ("0" * 16, b'{"id": "dev-7"}')]  # in two splits
    assert evaluation_file(twice, ids_differ=False) == {
        "evaluation.jsonl": b'{"example_id": "0000000000000000", "id": "dev-7"}\n'
    }


ROBERTA = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
BERT = processors.TemplateProcessing(
    single="<s> $A </s>", pair="<s> $A </s> $B:1 </s>:1", special_tokens=[("<s>", 0), ("</s>", 2)]
)
SHORT = ["The quick brown fox", "jumps", "over the lazy dogs' beds", "Blåbærsyltetøy på Ærø!"]


def loaded(post_processor):
    tokenizer = trained_tokenizer()
    tokenizer.post_processor = post_processor
    return tokenizer, LoadedTokenizer(tokenizer.to_str().encode())


@pytest.mark.parametrize(
    ("post_processor", "between", "types"),
    [
        (ROBERTA, ([0], [2, 2], [2]), {0}),
        (processors.BertProcessing(("</s>", 2), ("<s>", 0)), ([0], [2], [2]), {0, 1}),
        (BERT, ([0], [2], [2]), {0, 1}),
        (processors.ByteLevel(trim_offsets=False), ([], [], []), {0}),
    ],
)
def test_the_form_of_a_pair_is_found(post_processor, between, types):
    _, tokenizer = loaded(post_processor)
    assert ids_between(pair_form(tokenizer)) == between
    assert {part.type for part in pair_form(tokenizer) if part.side < 0} <= types


def test_other_forms_of_a_pair_are_refused():
    for template in ("<s> $B $A", "<s> $A $A $B"):
        post_processor = processors.TemplateProcessing(
            single="<s> $A", pair=template, special_tokens=[("<s>", 0)]
        )
        with pytest.raises(DataError, match="two texts|texts of a pair|uses a text twice"):
            pair_form(loaded(post_processor)[1])
    bare = loaded(processors.TemplateProcessing(single="$A", pair="$A $B"))[1]
    flags = [TASK, "--classes=a,b", "--text_pair_field=b"]
    with pytest.raises(UsageError, match="does not separate the two texts"):
        make_rows(bare, {"text": ["a"], "text_pair": ["b"], "label": ["a"]}, *flags)


PAIRED = [loaded(post_processor) for post_processor in (ROBERTA, BERT)]


@given(
    st.sampled_from(["left", "right"]),
    st.integers(3, 30),
    st.sampled_from(PAIRED),
    st.lists(st.tuples(st.sampled_from(SHORT), st.sampled_from(SHORT)), min_size=1, max_size=5),
)
def test_pairs_are_cut_and_put_together_as_tokenizers_does(side, room, paired, pairs):
    reference, tokenizer = paired
    form = pair_form(tokenizer)
    length = room + sum(part.side < 0 for part in form)
    reference.enable_truncation(length, strategy="longest_first", direction=side)
    columns = [strings(*(pair[text] for pair in pairs)) for text in (0, 1)]
    encoded = [tokenizer.encode(column) for column in columns]
    lengths = np.stack([ragged.lengths for ragged in encoded], axis=1)
    kept = longest_first(lengths, room)
    ids, types = fill_form(
        form,
        encoded,
        np.arange(len(pairs)),
        head_ExT=kept if side == "right" else np.zeros_like(kept),
        kept_ExT=kept,
    )
    for i, pair in enumerate(pairs):
        expected = reference.encode(*pair)
        part = slice(ids.offsets[i], ids.offsets[i + 1])
        assert ids.values[part].tolist() == expected.ids
        assert types.values[part].tolist() == expected.type_ids


@given(st.integers(1, 60), st.lists(st.integers(0, 60), min_size=1, max_size=2))
def test_the_longer_text_goes_first(room, lengths):
    kept = longest_first(np.array([lengths]), room)[0].tolist()
    expected = list(lengths)
    while sum(expected) > room:  # a token at a time
        longest = len(expected) - 1 - expected[::-1].index(max(expected))
        if len(expected) == 2 and expected[0] == expected[1]:
            longest = 0 if lengths[0] <= lengths[1] else 1
        expected[longest] -= 1
    assert kept == expected
