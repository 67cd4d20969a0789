"""--quality_model: the column, the minimum, and what is refused."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.tools.corpus_factory import build, rows_of, write_lines
from tests.tools.filter_factory import column, documents_of, filters_of
from tests.tools.model_files import model_bytes
from textmill.pipelines.corpus.filter_documents import load_filters
from textmill.pipelines.linear_model.scores import load_model
from textmill.schemas.errors import DataError, UsageError, spell

TEXTS = [f"the film {name} good {'bad ' * n}not" for n, name in enumerate(["a", "er", "på", "x"])]


def decompress(content):
    return pa.CompressedInputStream(pa.BufferReader(content), "zstd").read()


@pytest.fixture
def path(tmp_path):
    model = tmp_path / "model.bin"
    model.write_bytes(model_bytes(3, labels=3))
    return str(model)


def scores_of(path, texts, label=0):
    return load_model(path).scores(column(texts), label).tolist()


def test_documents_get_their_score_and_the_worst_are_dropped(path):
    scores = scores_of(path, TEXTS)
    least = sorted(scores)[1]
    filters = filters_of(quality_model=path, min_quality=least)
    made = load_filters(filters).apply(documents_of(TEXTS))
    kept = [i for i, score in enumerate(scores) if score >= least]
    assert made.documents.text.to_pylist() == [TEXTS[i] for i in kept]
    assert made.documents.columns["quality"].to_pylist() == [scores[i] for i in kept]
    assert made.dropped == {"quality_model:low": 1}
    assert sum(made.observed["quality"].values()) == len(TEXTS)
    assert filters.parameters() | {"quality_label": "good", "min_quality": least} == (
        filters.parameters()
    )


def test_scores_are_of_the_text_that_other_rules_leave(path):
    filters = filters_of(quality_model=path, quality_label="other", pii="replace", min_words=2)
    made = load_filters(filters).apply(documents_of(["the film a@b.com", "film", "the x"]))
    expected = scores_of(path, ["the film <email>", "the x"], label=1)
    assert made.documents.columns["quality"].to_pylist() == expected


def drop_low(document):
    """A user's function, which receives the score."""
    return None if document["quality"] > 0.5 else "low"


def test_the_users_function_receives_the_score(path):
    filters = filters_of(quality_model=path, filter=f"{__name__}:drop_low")
    made = load_filters(filters).apply(documents_of(TEXTS))
    scores = scores_of(path, TEXTS)
    assert made.documents.columns["quality"].to_pylist() == [s for s in scores if s > 0.5]


@pytest.mark.parametrize("file_format", ["parquet", "jsonl"])
def test_the_column_is_in_the_corpus(tmp_path, path, file_format):
    lines = [{"text": text, "url": f"https://a.org/{n}"} for n, text in enumerate(TEXTS)]
    source = write_lines(tmp_path / "in.jsonl", [*lines, lines[0]])
    flags = [f"--quality_model={path}", "--keep_fields=url", f"--file_format={file_format}"]
    corpus = build(source, tmp_path / "corpus", *flags, "--near_duplicates=jaccard:0.9")
    assert corpus.schema.columns == ("id", "text", "url", "quality")
    if file_format == "jsonl":
        [file] = corpus.documents
        content = Path(corpus.directory, file.path).read_bytes()
        rows = list(map(json.loads, decompress(content).splitlines()))
        expected = scores_of(path, [row["text"] for row in rows])
        assert [np.float32(row["quality"]) for row in rows] == expected
    else:
        rows = rows_of(corpus)
        [file] = corpus.documents
        assert (
            str(pq.read_schema(f"{corpus.directory}/{file.path}").field("quality").type) == "float"
        )
        assert [row["quality"] for row in rows] == scores_of(path, [row["text"] for row in rows])
    assert corpus.stats.observed["documents_with_field"] == {"url": 4, "quality": 4}
    assert corpus.stats.total().documents == 4


def test_edited_paragraphs_and_few_files_keep_the_column(tmp_path, path):
    documents = [f"{text}\n\nthe same end of a page" for text in TEXTS]
    source = write_lines(tmp_path / "in.jsonl", documents)
    flags = [f"--quality_model={path}", "--duplicate_paragraphs=paragraph:1", "--num_files=3"]
    rows = rows_of(build(source, tmp_path / "corpus", *flags))
    # The score is of the document that was filtered, before its paragraphs are compared.
    whole = [next(one for one in documents if one.startswith(row["text"])) for row in rows]
    assert [row["quality"] for row in rows] == scores_of(path, whole)
    assert len(rows) == 4


def test_rejects_have_their_score(tmp_path, path):
    source = write_lines(tmp_path / "in.jsonl", TEXTS)
    scores = scores_of(path, TEXTS)
    least = max(scores)
    flags = [f"--quality_model={path}", f"--min_quality={least}", "--keep_rejects"]
    corpus = build(source, tmp_path / "corpus", *flags)
    lines = Path(corpus.directory, "rejects", "filtered.jsonl").read_text().splitlines()
    found = {line["text"]: (line["measured"], line["limit"]) for line in map(json.loads, lines)}
    assert {text: limit for text, (_, limit) in found.items()} == dict.fromkeys(
        [text for text, score in zip(TEXTS, scores, strict=True) if score < least], least
    )
    for text, score in zip(TEXTS, scores, strict=True):
        assert text not in found or found[text][0] == pytest.approx(score, abs=1e-7)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"min_quality": 0.5}, "--min_quality=0.5: it needs --quality_model=FILE"),
        ({"quality_label": "hq"}, "--quality_label=hq: it needs --quality_model=FILE"),
        ({"min_quality": 1.5, "quality_model": "x"}, "give a number from 0 to 1"),
    ],
)
def test_impossible_flags_are_refused(flags, message):
    with pytest.raises(UsageError) as caught:
        filters_of(**flags)
    assert message in spell(str(caught.value))


def test_a_label_that_the_model_lacks_is_refused(path):
    with pytest.raises(UsageError, match="has no such label; it has 3, such as good"):
        filters_of(quality_model=path, quality_label="god").parameters()
    with pytest.raises(UsageError, match="it has 3, such as good, other, ø"):
        filters_of(quality_model=path, quality_label="zz").parameters()


def test_another_file_is_refused(tmp_path):
    (tmp_path / "x.bin").write_bytes(b"text")
    with pytest.raises(DataError, match="not a complete model of fastText"):
        filters_of(quality_model=str(tmp_path / "x.bin")).parameters()
