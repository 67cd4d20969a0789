"""Filters as flags give them; the metrics have tests of their own."""

import hashlib
import json
import unicodedata
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from tests.tools.filter_factory import TEXT, column, documents_of, filters_of
from textmill.pipelines.corpus.filter_documents import apply_rules, load_filters
from textmill.pipelines.corpus.filters import Filters, sort_reasons
from textmill.pipelines.corpus.rule_warnings import warn_of
from textmill.pipelines.corpus.rules.rule import Rule, RuleResult
from textmill.pipelines.readers.documents import Role
from textmill.schemas.errors import DataError, UsageError
from textmill.schemas.format.drops import Funnel, Removed

FIELDS = (TEXT, Role("label", "label", "label"), Role("id", "id", "id"))
BLANK = {"empty": 3}  # dropped before any filter


def filtered(filters, *columns, roles=(TEXT,)):
    documents = documents_of(*columns, roles=roles, empty=BLANK["empty"])
    return load_filters(filters).apply(documents)


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Writes a module of filters; gives back how to name its function."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(body):
        name = f"filters_{hashlib.sha256(body.encode()).hexdigest()[:8]}"
        (tmp_path / f"{name}.py").write_text(body)
        return f"{name}:choose"

    return write


def test_each_document_is_dropped_for_one_reason_and_counted():
    texts = ["hi", "a text that stays", "x" * 40, "oneword", "no no no no", "as long as this one"]
    filters = filters_of(min_chars=3, max_chars=39, min_words=2, max_repetition=0.5)
    made = filtered(filters, texts)
    assert made.documents.text.to_pylist() == ["a text that stays", "as long as this one"]
    rules = {"min_chars": 1, "max_chars": 1, "min_words": 1, "max_repetition": 1}
    assert made.dropped == {**BLANK, **rules} and made.read == len(texts) + 3
    assert made.lines == b""
    assert (made.documents.empty, made.documents.source_bytes) == (3, 100)


TEXTS = ["ab", "abc", "abcd", "æøå", "a b", "a b c"]
REPEATS = ["yes\nyes\nfour"]  # 3 of 10 characters stand in a line that was there before


@pytest.mark.parametrize(
    ("flags", "texts", "kept"),
    [
        ({"min_chars": 3, "max_chars": 3}, TEXTS, ["abc", "æøå", "a b"]),
        ({"min_words": 2}, TEXTS, ["a b", "a b c"]),
        ({"max_repetition": 0.3}, REPEATS, REPEATS),
        ({"max_repetition": 0.29}, REPEATS, []),
        # Normal forms come before what is measured.
        ({"normalize": "nfc", "max_chars": 3}, ["e\u0301" * 3, "éé", "ﬁn"], ["ééé", "éé", "ﬁn"]),
        ({"normalize": "nfkc", "min_chars": 3}, ["e\u0301" * 3, "éé", "ﬁn"], ["ééé", "fin"]),
    ],
    ids=str,
)
def test_limits_themselves_are_kept(flags, texts, kept):
    assert filtered(filters_of(**flags), texts).documents.text.to_pylist() == kept


def test_a_function_is_asked_about_what_the_others_keep(module):
    name = module(
        "def choose(document):\n"
        "    assert len(document['text']) >= 3, document\n"
        "    if 'buy' in document['text'] or document['label'] == '9':\n"
        "        return 'spam'\n"
    )
    columns = (["ab", "buy now", "buy!", "news"], ["0", "0", "1", "9"], ["a", "b", "c", "d"])
    filters = filters_of(filter=name, min_chars=4, keep_rejects=True)
    made = filtered(filters, *columns, roles=FIELDS)
    assert made.documents.columns.to_pylist() == []
    assert made.dropped == {**BLANK, "min_chars": 1, "filter:spam": 3}
    first = json.loads(made.lines.splitlines()[0])
    assert first["reason"] == "min_chars"
    assert (first["text"], first["label"], first["id"]) == ("ab", "0", "a")


FAULTY = {
    "raises": ("raise KeyError('title')", ["KeyError: 'title'", "which begins 'some text'"]),
    "raises over lines": ("raise ValueError('a\\nb')", ["ValueError: a b"]),
    "true": ("return True", ["returned True", "None to keep it"]),
    "false": ("return False", ["returned False"]),
    "number": ("return 3", ["returned 3"]),
    # numpy's strings lose it, and a run would end by it after all its work.
    "NUL at the end": ("return 'bad\\0'", ["returned 'bad\\x00'", "60 printable characters"]),
    "two lines": ("return 'bad\\nworse'", ["returned 'bad\\nworse'"]),
    "half a character": ("return chr(0xD800)", ["returned '\\ud800'"]),
    "remark": ("return document['text'] * 20", ["at most 60 printable characters"]),
}


@pytest.mark.parametrize(("body", "said"), FAULTY.values(), ids=FAULTY)
def test_a_faulty_function_is_named_with_its_document(module, body, said):
    name = module(f"def choose(document):\n    {body}\n")
    with pytest.raises(DataError) as error:
        filtered(filters_of(filter=name), ["some text"])
    for words in (f"--filter={name}", *said):
        assert words in str(error.value)
    assert "\n" not in str(error.value)  # a worker's message comes back as one line


def test_a_function_may_not_give_remarks_for_reasons(module):
    name = module("def choose(document):\n    return 'long: %d' % len(document['text'])\n")
    with pytest.raises(DataError, match="101 different reasons"):
        filtered(filters_of(filter=name), ["x" * n for n in range(1, 102)])


def test_ids_name_documents():
    filters = filters_of(filter="operator:itemgetter")
    with pytest.raises(DataError, match="'q7', which begins 'Who[?]'"):
        filtered(filters, ["Who?"], ["me"], ["q7"], roles=FIELDS)


UNUSABLE = {
    "no colon": ("json.loads", "not package.module:function"),
    "no function": ("json:", "not package.module:function"),
    "two colons": ("a:b:c", "not package.module:function"),
    "a file": ("my_filters.py:spam", "without folders and .py"),
    "a file in a folder": ("filters/mine:spam", "without folders and .py"),
    "no module": ("nowhere.at_all:f", "No module named 'nowhere'"),
    "not there": ("json:lods", "no function 'lods'; it has"),
    "not callable": ("json:__all__", "no function '__all__'"),
}


@pytest.mark.parametrize(("name", "said"), UNUSABLE.values(), ids=UNUSABLE)
def test_a_function_that_cannot_be_had(name, said):
    with pytest.raises(UsageError) as error:
        filters_of(filter=name).parameters()
    assert f"--filter={name}" in str(error.value) and said in str(error.value)


def test_a_module_that_fails_while_it_is_imported(module):
    name = module("1 / 0\n")
    with pytest.raises(UsageError, match="ZeroDivisionError: division by zero"):
        filters_of(filter=name).parameters()


def test_what_decides_is_recorded_and_nothing_else(module):
    plain = Filters().parameters()
    assert plain == {
        "normalize": "none",
        "min_chars": 0,
        "max_chars": 0,
        "min_words": 0,
        "max_repetition": 1.0,
    }
    assert filters_of(keep_rejects=True).parameters() == plain
    nfc = filters_of(normalize="nfc").parameters()
    assert nfc == {
        **plain,
        "normalize": "nfc",
        "unicode": unicodedata.unidata_version,
        "line_ends": "lf",
    }
    body = "def choose(document):\n    return None\n"
    recorded = filters_of(filter=module(body)).parameters()
    assert recorded["filter_sha256"] == hashlib.sha256(body.encode()).hexdigest()


def test_reasons_stand_in_the_order_of_their_rules():
    given = ["near_duplicates", "c4:lines", "filter:ad", "min_words", "held_out", "min_chars", "x"]
    assert sort_reasons(given) == [
        *("x", "min_chars", "min_words", "c4:lines", "filter:ad"),
        *("held_out", "near_duplicates"),
    ]
    assert sort_reasons(given[::-1]) == sort_reasons(given)


def test_a_rule_that_takes_more_than_half_of_what_it_sees_is_warned_of():
    removed = {
        "min_chars": Removed(900, 9_000),
        "gopher:min_stop_words": Removed(51, 51_000),
        "gopher:max_symbols": Removed(9, 9_000),
        "duplicates": Removed(30, 30_000),
    }
    funnel = Funnel(1_000, 109_000, removed=removed)
    first, second = warn_of(funnel, {})
    assert first.startswith("min_chars drops 900 of the 1,000 documents that reach it: documents")
    assert second.startswith(
        "gopher:min_stop_words drops 51 of the 100 documents that reach gopher's rules: "
    )
    assert "may not be English" in second
    assert warn_of(replace(funnel, documents=1_000_000, text_bytes=10**9), {}) == []


def test_a_rule_that_takes_more_than_half_of_the_text_is_warned_of():
    """Of a few long documents; and each of the rules on sizes is compared with what reaches it."""
    funnel = Funnel(100, 1_000, removed={"gopher:max_words": Removed(2, 546)})
    assert warn_of(funnel, {}) == [
        "gopher:max_words drops 55% of the text of the documents that reach gopher's rules"
    ]
    sizes = {"min_chars": Removed(50, 50), "max_chars": Removed(26, 260)}
    [warning] = warn_of(Funnel(100, 1_000, removed=sizes), {})
    assert warning == "max_chars drops 26 of the 50 documents that reach it"
    assert warn_of(Funnel(100, 1_000, removed={"max_chars": Removed(26, 260)}), {}) == []


def test_edits_that_take_more_than_half_of_the_text_are_warned_of():
    removed = {"c4:min_sentences": Removed(40, 40_000)}
    funnel = Funnel(100, 100_000, removed=removed)
    assert warn_of(funnel, {"edited_bytes": {"c4": 10_000}}) == []
    [warning] = warn_of(funnel, {"edited_bytes": {"c4": 10_001}})
    assert warning.startswith(
        "c4 removes 50% of the text that reaches it, most of it by c4:min_sentences: the docu"
    )
    phrases = replace(funnel, removed={"c4:page_phrases": Removed(40, 60_000)})
    [warning] = warn_of(phrases, {"edited_bytes": {"c4": 1_000}})
    assert "by c4:page_phrases: the text may be code" in warning
    [warning] = warn_of(funnel, {"edited_bytes": {"c4": 50_000}})
    assert warning.startswith("c4 removes 90% of the text that reaches it: C4 treats each line")


def test_every_cause_is_of_a_reason_that_rules_have():
    for row, group in filters_of(quality="gopher,c4,fineweb", min_chars=1, min_words=1).groups():
        if row not in ("language", "decontamination", "quality_model"):
            reasons = {name for rule in group.make_rules() for name in rule.reasons} | {""}
            assert {name.removeprefix(f"{row}:") for name in reasons} >= {*group.CAUSES}


def judge_lengths(text):
    lengths = np.array([len(document) for document in text.to_pylist()])
    return RuleResult(np.where(lengths < 2, 1, np.where(lengths > 8, 2, 0)), observed=seen(text))


def seen(text):
    return {"seen": {document: 1 for document in text.to_pylist()}}


def strip_x(text):
    stripped = column([document.strip("x") for document in text.to_pylist()])
    return RuleResult(np.zeros(len(text), bool), stripped)


LENGTHS = Rule(("short", "long"), judge_lengths)
STRIPS = Rule(("nothing_left",), strip_x, edits="strip")


def judge_labels(text, label):
    assert (text.to_pylist(), label.to_pylist()) == (["ab", "abc", "abc"], ["v", "w", "z"])
    return RuleResult(np.array([False, True, False]))


def test_rules_drop_edit_and_count_one_after_the_other():
    texts = ["a", "xxab", "abc", "xx", "a" * 9, "abcx"]
    columns = pa.RecordBatch.from_pydict({"text": column(texts), "label": column("uvwxyz")})
    by_label = Rule(("by_label",), judge_labels, roles=("label",))
    applied = apply_rules(columns, (LENGTHS, STRIPS, LENGTHS, by_label))
    assert applied.reasons == {0: "short", 4: "long", 3: "nothing_left", 2: "by_label"}
    assert applied.left.tolist() == [1, 5]
    assert applied.columns.to_pylist() == [
        {"text": "ab", "label": "v"},
        {"text": "abc", "label": "z"},
    ]
    first = dict.fromkeys(texts, 1)
    assert applied.observed["seen"] == {**first, "ab": 1, "abc": 2}
    assert applied.observed["edited"] == {"strip": 2}
    assert applied.observed["edited_bytes"] == {"strip": 3}
