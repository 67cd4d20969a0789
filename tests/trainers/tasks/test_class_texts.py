"""Texts to predict become the rows that build_shards makes of them."""

import json
import unicodedata
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, processors

from tests.tools.class_factory import class_schema
from tests.tools.shard_factory import tokenizer_json
from tests.tools.task_rows import make_rows
from tests.tools.tokenizer_factory import trained_tokenizer
from textmill.pipelines.encoding.tokenizer import LoadedTokenizer
from textmill.schemas.errors import DataError, UsageError
from textmill.trainers.tasks.text_rows import TextRows, read_texts

LONG = "The quick brown fox, who's 12 years old, doesn't jump over the lazy dogs' beds."
TEXTS = [
    "They'll say",
    LONG,
    "Blåbærsyltetøy på Ærø",
    "beds",
    LONG + " Again: " + LONG,
    "½ of them",
]
POST_PROCESSORS = {
    "roberta": processors.RobertaProcessing(("</s>", 2), ("<s>", 0)),
    "bert": processors.BertProcessing(("</s>", 2), ("<s>", 0)),
}


def rows_of(columns):
    kept = [columns[name] for name in sorted(columns) if name.endswith(("ids", "type_ids"))]
    return sorted(np.concatenate(kept, axis=1).tolist())


@pytest.mark.parametrize("post_processor", POST_PROCESSORS)
@pytest.mark.parametrize("truncation", ["head", "tail", "head_tail"])
@pytest.mark.parametrize("pairs", [False, True])
def test_rows_are_those_of_a_set(post_processor, truncation, pairs):
    tokenizer = trained_tokenizer()
    tokenizer.post_processor = POST_PROCESSORS[post_processor]
    fields = {"text": TEXTS, "label": list("ababab")}
    flags = ["--task=classification", "--classes=a,b", "--max_length=24"]
    if pairs:
        fields["text_pair"] = TEXTS[::-1]
        flags.append("--text_pair_field=other")
    loaded = LoadedTokenizer(tokenizer.to_str().encode())
    made = make_rows(loaded, fields, *flags, f"--truncation={truncation}")
    columns, schema, given = made.columns["train"], made.schema, [TEXTS]
    if pairs:  # of a set that was normalized
        parameters = {**schema.parameters, "normalize": "nfc"}
        schema = replace(schema, parameters=parameters, fingerprint="")
        apart = [unicodedata.normalize("NFD", text) for text in TEXTS]
        given = [apart, apart[::-1]]
    found = TextRows(schema, tokenizer).rows(list(zip(*given, strict=True)))
    assert {name: (c.dtype, c.shape) for name, c in found.items()} == {
        name: (c.dtype, c.shape) for name, c in columns.items() if name in found
    }
    assert set(columns) - set(found) == {"label", "example_id"}
    assert rows_of(found) == rows_of({name: columns[name] for name in found})


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=5),
    st.integers(6, 20),
)
def test_pairs_are_cut_as_tokenizers_cuts_them(lengths, max_length):
    """Each token its own, so that what is kept of which text can be seen."""
    schema = class_schema(pairs=True, max_length=max_length)
    tokenizer = Tokenizer.from_buffer(tokenizer_json(schema.vocab_size))
    texts = [(" ".join(["w7"] * first), " ".join(["w8"] * second)) for first, second in lengths]
    rows = TextRows(schema, tokenizer).rows(texts)
    reference = Tokenizer.from_buffer(tokenizer_json(schema.vocab_size))
    reference.enable_truncation(max_length, strategy="longest_first")
    for row, text in enumerate(texts):
        encoding = reference.encode(*text)
        count = len(encoding.ids)
        assert rows["input_ids"][row, :count].tolist() == encoding.ids
        assert rows["token_type_ids"][row, :count].tolist() == encoding.type_ids
        assert rows["segment_ids"][row].tolist() == [1] * count + [0] * (max_length - count)


def test_batches_have_one_size_and_lose_no_text():
    schema = class_schema()
    maker = TextRows(schema, Tokenizer.from_buffer(tokenizer_json(schema.vocab_size)))
    texts = [(f"w{number}",) for number in range(5, 12)]
    batches = list(maker.batches(iter(texts), 3))
    assert [batch["row_weights"].tolist() for batch in batches] == [[1] * 3, [1] * 3, [1, 0, 0]]
    ids = np.concatenate([batch["input_ids"][batch["row_weights"] > 0] for batch in batches])
    assert ids[:, 1].tolist() == list(range(5, 12))


def written(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content)
    return str(path)


def test_files_are_read_line_by_line(tmp_path):
    """Lines end at a line feed alone; an empty line of text is a text, of JSON it is nothing."""
    schema = class_schema(pairs=True)
    single = class_schema()
    single.parameters["text_field"] = "review.body"
    schema.parameters.update(text_field="a", text_pair_field="b")
    lines = "\ufeffone\u2028still\r\n\nlast".encode()
    assert list(read_texts(written(tmp_path, "a.txt", lines), single)) == [
        ("one\u2028still",),
        ("",),
        ("last",),
    ]
    with pytest.raises(UsageError, match="classifies pairs: give a .jsonl file"):
        list(read_texts(written(tmp_path, "b.tsv", b"a\tb\n"), schema))
    objects = [{"b": "2", "a": "1"}, {"a": "", "b": "x", "label": 3}]
    content = "\n\n".join(map(json.dumps, objects)).encode()
    assert list(read_texts(written(tmp_path, "c.jsonl", content), schema)) == [
        ("1", "2"),
        ("", "x"),
    ]
    both = b'{"review": {"body": "fine"}}\n{"review.body": "flat", "review": 1}'
    assert list(read_texts(written(tmp_path, "d.jsonl", both), single)) == [("fine",), ("flat",)]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("x.jsonl", b"{]\n", "line 1 is not JSON"),
        ("x.jsonl", rb'{"text": "\ud800", "other": "b"}', "line 1 is not JSON .*surrogates not"),
        ("x.jsonl", b'{"text": ' + b"[" * 99_999, "line 1 is not JSON .*recursion"),
        ("x.jsonl", b'{"text": "a", "other": "b"}\n\xff\n', "line 2 is not JSON"),
        ("x.jsonl", b"[1]\n", "no text in the field 'text'.*holds no object"),
        ("x.jsonl", b'{"text": "a", "c": 1}\n', "no text in the field 'other'.*holds text, c"),
        ("x.jsonl", b'{"text": "a", "other": 1}\n', "no text in the field 'other'"),
        ("x.jsonl", b"{}\n", "holds nothing"),
    ],
)
def test_a_line_without_texts_is_named(tmp_path, name, content, said):
    schema = class_schema(pairs=True)
    schema.parameters.update(text_field="text", text_pair_field="other")
    with pytest.raises(DataError, match=said):
        list(read_texts(written(tmp_path, name, content), schema))


def test_a_text_file_that_cannot_be_read(tmp_path):
    with pytest.raises(DataError, match="line 2 is not UTF-8"):
        list(read_texts(written(tmp_path, "x.txt", b"a\n\xff\n"), class_schema()))
    with pytest.raises(DataError, match="cannot be read"):
        list(read_texts(str(tmp_path / "no.txt"), class_schema()))
