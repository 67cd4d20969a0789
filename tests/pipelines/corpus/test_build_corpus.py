"""Whole runs of build_corpus: what a corpus holds, what is found again, what is refused."""

import gzip
import html
import json
import os
import random
import re

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.pipelines.readers.test_page_comments import (
    ARTICLE,
    BODY,
    COMMENTS,
    found,
    site,
    wordpress,
)
from tests.tools.corpus_factory import build, rows_of, write_lines
from tests.tools.near_duplicates import digest_of, near_documents
from textmill.pipelines.build_corpus import main
from textmill.pipelines.corpus.options import CorpusOptions
from textmill.pipelines.corpus.run import plan, run
from textmill.pipelines.input_options import InputFlags
from textmill.pipelines.train_tokenizer import main as train
from textmill.pipelines.verify import main as verify
from textmill.schemas.errors import UsageError
from textmill.schemas.files.finished import Corpus, open_finished


def hash_of(text):
    return digest_of(text).hex()


@pytest.fixture
def source(tmp_path):
    """Two lines of text."""
    path = tmp_path / "source.txt"
    path.write_text("a text\nanother\n")
    return path


def opened_by_datasets(path):
    """Rows of the documents alone, not of those that were removed."""
    return datasets.load_dataset(str(path), cache_dir=f"{path}-cache")["train"].to_list()


def test_a_corpus_holds_each_document_once_in_the_order_of_hashes(tmp_path):
    texts = ["one cat", "two cats", "café noir", "cafe\u0301 noir", "one cat", ""]
    records = [{"text": text, "url": f"u{i}"} for i, text in enumerate(texts)]
    source = write_lines(tmp_path / "source.jsonl", records)
    corpus = build(source, tmp_path / "corpus", "--keep_fields=url,again:url", "--num_files=3")
    due = {"one cat": "u0", "two cats": "u1", "café noir": "u2"}  # of equal ones the smallest
    assert rows_of(corpus) == sorted(
        ({"id": hash_of(t), "text": t, "url": u, "again": u} for t, u in due.items()),
        key=lambda row: row["id"],
    )
    assert [file.path for file in corpus.documents] == [
        f"documents-0000{i}-of-00003.parquet" for i in range(3)
    ]
    stats = corpus.stats
    assert (stats.documents_read, stats.dropped) == (6, {"duplicates": 2, "empty": 1})
    assert (stats.total().documents, stats.total().words) == (3, 6)
    assert stats.total().text_bytes == 7 + 8 + 10
    assert stats.funnel.removed["duplicates"].documents == 2
    assert stats.broken_equations() == []


def test_fields_of_any_type_are_kept_and_places_are(tmp_path):
    values = ["plain", 5, 0.25, True, None, ["a", {"b": 1}], {"c": None}]
    records = [{"text": f"text {i}", "v": value} for i, value in enumerate(values)]
    source = write_lines(tmp_path / "source.jsonl", records)
    corpus = build(source, tmp_path / "corpus", "--keep_fields=v", "--keep_source")
    found = {row["text"]: row for row in rows_of(corpus)}
    shown = ["plain", "5", "0.25", "true", "", '["a", {"b": 1}]', '{"c": null}']
    assert [found[f"text {i}"]["v"] for i in range(7)] == shown
    lines = source.read_text().splitlines(keepends=True)
    for i in range(7):
        row = found[f"text {i}"]
        assert (row["file"], row["record"]) == (str(source), len("".join(lines[:i])))


def test_a_field_with_a_colon_is_kept_by_another_name(tmp_path):
    source = write_lines(tmp_path / "source.jsonl", [{"text": "a", "og:title": "b"}])
    corpus = build(source, tmp_path / "corpus", "--keep_fields=og_title:og:title")
    assert [row["og_title"] for row in rows_of(corpus)] == ["b"]


def test_json_lines_hold_the_same(tmp_path, source):
    texts = ['a "quoted"\ttext', "no", "plain", "norsk: æøå", *near_documents(40)]
    source.write_text("\n".join(texts))
    flags = ["--file_format=jsonl", "--keep_source", "--min_chars=5"]
    corpus = build(source, tmp_path / "corpus", *flags, "--near_duplicates=jaccard:0.8")
    path = f"{corpus.directory}/{corpus.documents[0].path}"
    assert path.endswith(".jsonl.zst")
    with pa.input_stream(path, compression="zstd") as file:
        rows = [json.loads(line) for line in file.read().decode().splitlines()]
    assert {row["text"]: row["record"] for row in rows}.items() >= {
        ('a "quoted"\ttext', 0),
        ("plain", 19),
        ("norsk: æøå", 25),
    }
    assert [row["id"] for row in rows] == sorted(hash_of(row["text"]) for row in rows)
    assert corpus.stats.dropped["near_duplicates"]
    assert opened_by_datasets(tmp_path / "corpus") == rows


def test_cut_web_pages_are_counted_and_packed_ones_rejected(tmp_path, capsys):
    head = b"HTTP/1.1 200 OK\nContent-Type: text/html\nContent-Encoding: gzip\n\n"
    packed = gzip.compress(b"<p>" + b"A sentence of words. " * 99)
    responses = [head + packed, head + packed[:-20], head + b"\x28\xb5" + bytes(range(256)) * 9]
    records = (
        b"WARC/1.0\nWARC-Type: response\nContent-Length: %d\n\n%b\n\n" % (len(one), one)
        for one in responses
    )
    (tmp_path / "x.warc").write_bytes(b"".join(records))
    corpus = build(tmp_path / "x.warc", tmp_path / "corpus", "--html=all")
    assert (corpus.stats.documents_read, corpus.stats.dropped) == (3, {"not_html": 1})
    assert corpus.stats.observed == {"responses": {"body_cut": 1}}
    assert len(rows_of(corpus)) == 2
    out = " ".join(capsys.readouterr().out.split())
    assert "cut pages │ 1, whose stored bodies are cut or damaged and end early" in out
    assert verify([f"{tmp_path}/corpus"]) is None


def test_comments_of_readers_are_dropped_or_kept_by_a_flag(tmp_path, capsys):
    (tmp_path / "a.html").write_text(site(BODY + wordpress(COMMENTS)))
    for way in ("main", "markdown"):
        texts = []
        for comments in ("drop", "keep"):
            flags = (f"--html={way}", f"--html_comments={comments}")
            corpus = build(tmp_path / "a.html", tmp_path / way / comments, *flags)
            [row] = rows_of(corpus)
            texts.append(found(ARTICLE + COMMENTS, row["text"]))
        assert texts == [ARTICLE, ARTICLE + COMMENTS]
    build(tmp_path / "a.html", tmp_path / "main/drop")  # the defaults
    assert "nothing to do" in capsys.readouterr().out
    with pytest.raises(UsageError, match='html_comments: stored "keep", requested "drop"'):
        build(tmp_path / "a.html", tmp_path / "main/keep")
    build(tmp_path / "a.html", tmp_path / "all", "--html=all")
    build(tmp_path / "a.html", tmp_path / "all", "--html=all", "--html_comments=keep")
    assert "nothing to do" in capsys.readouterr().out


def test_a_second_run_finds_it_and_another_is_refused(tmp_path, source, capsys):
    build(source, tmp_path / "corpus")
    build(source, tmp_path / "corpus")
    assert "nothing to do" in capsys.readouterr().out
    with pytest.raises(UsageError, match="min_words: stored 0, requested 1.*--overwrite"):
        build(source, tmp_path / "corpus", "--min_words=1")
    source.write_text("a text\nanothe2\n")
    with pytest.raises(UsageError, match="files of the same sizes but other content"):
        build(source, tmp_path / "corpus")
    assert len(rows_of(build(source, tmp_path / "corpus", "--overwrite"))) == 2
    with pytest.raises(UsageError, match="contains a corpus"):
        train([f"--input={source}", f"--output={tmp_path / 'corpus'}", "--vocab_size=300"])
    renamed = source.rename(tmp_path / "renamed.txt")
    build(renamed, tmp_path / "corpus")
    build(renamed, tmp_path / "corpus", "--keep_source", "--overwrite")
    with pytest.raises(UsageError, match="splits or names"):
        build(renamed.rename(source), tmp_path / "corpus", "--keep_source")


def test_a_run_from_python_returns_what_it_makes_or_finds(tmp_path, source, capsys):
    output = str(tmp_path / "corpus")
    options, lines = CorpusOptions(output, InputFlags((str(source),), "line")), []
    expected = plan(options, [], say=print)
    made, found = (run(options, [], say=lines.append) for _ in range(2))
    assert made and found
    assert made.thing == found.thing == open_finished(Corpus, output)
    assert made.seconds is not None and found.seconds is None and found.warnings == ()
    assert (expected.kept, expected.schema) == (2, made.thing.schema)
    assert len(lines) == 1 and "shuffle: scratch files" in lines[0]
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    "flag, words",
    [
        ("--keep_fields=text", "already has a column text"),
        ("--keep_fields=a,id", "source_id:id"),
        ("--keep_fields=5b", "not FIELD or NAME:FIELD"),
        ("--keep_fields=a,a", "already has a column a"),
        ("--keep_fields=path --keep_rejects", "filtered.jsonl already has a column path.*e_path:p"),
        ("--num_files=0", "give 1 to"),
        ("--num_files=x", "auto, or a number"),
        (f"--dry_run --assume_bytes={'9' * 400}GB", "9GB: give a size such as 500GB"),
        ("--output=", "--output is empty"),
    ],
)
def test_flags_of_build_corpus_that_cannot_work(tmp_path, source, flag, words):
    with pytest.raises(UsageError, match=words):
        build(source, tmp_path / "o", *flag.split())


def test_removed_near_duplicates_are_listed_with_their_texts(tmp_path, source):
    source.write_text("\n".join(near_documents(200)))
    flags = ["--near_duplicates=jaccard:0.8", "--keep_rejects", "--num_files=3"]
    corpus = build(source, tmp_path / "corpus", *flags)
    assert opened_by_datasets(tmp_path / "corpus") == rows_of(corpus)
    kept = {row["id"] for row in rows_of(corpus)}
    names = corpus.schema.removed_names()
    removed = pa.concat_tables(pq.read_table(tmp_path / "corpus" / name) for name in names)
    assert len(removed) == corpus.stats.dropped["near_duplicates"] > 10
    for row in removed.to_pylist():
        assert row["id"] == hash_of(row["text"]) and row["id"] not in kept
        assert row["representative"] in kept
    sample = corpus.stats.funnel.removed["near_duplicates"].samples[0]
    assert sample.detail.startswith("similarity 0.")
    # Another run without near-duplicates leaves no list behind.
    build(source, tmp_path / "corpus", "--num_files=3", "--overwrite")
    assert not (tmp_path / "corpus/removed").exists()


def test_repeated_paragraphs_are_counted_as_edits(tmp_path):
    """The first document that has a paragraph keeps it, and all others lose it."""
    texts = [f"text {n}\n\nShare this page!\n\nthe end of {n}" for n in range(20)]
    source = write_lines(tmp_path / "source.jsonl", texts)
    flags = ["--duplicate_paragraphs=paragraph:2", "--num_files=3"]
    corpus = build(source, tmp_path / "corpus", *flags)
    first = min(texts, key=hash_of)
    edited = {text.replace("Share this page!\n\n", "") for text in texts if text != first}
    rows = rows_of(corpus)
    assert {row["text"] for row in rows} == edited | {first}
    assert [row["id"] for row in rows] == sorted(hash_of(row["text"]) for row in rows)
    assert corpus.stats.observed["edited"] == {"duplicate_paragraphs": 19}
    assert (corpus.stats.funnel.edited_words, corpus.stats.broken_equations()) == (3 * 19, [])


@pytest.mark.timeout(120)
def test_a_readme_that_is_a_pipe_is_not_read(tmp_path, source):
    (tmp_path / "corpus").mkdir()
    os.mkfifo(tmp_path / "corpus/README.md")
    corpus = build(source, tmp_path / "corpus")
    assert "README.md" not in {file.path for file in corpus.manifest.files}
    assert (tmp_path / "corpus/README.md").is_fifo()


def test_a_folder_that_is_a_link_is_not_written_through(tmp_path, source):
    (tmp_path / "corpus").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/mine.jsonl").write_text("mine")
    for name in ("rejects", "removed"):
        (tmp_path / "corpus" / name).symlink_to(tmp_path / "elsewhere")
        with pytest.raises(UsageError, match=f"corpus/{name} is a link to .*/elsewhere, into whic"):
            build(source, tmp_path / "corpus")
        (tmp_path / "corpus" / name).unlink()
    assert (tmp_path / "elsewhere/mine.jsonl").read_text() == "mine"


def test_a_readme_of_somebody_else_stays(tmp_path, source):
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus/README.md").write_text("mine")
    (tmp_path / "corpus/removed").write_text("mine too")  # the name of a folder
    build(source, tmp_path / "corpus")
    build(source, tmp_path / "corpus", "--min_chars=7", "--overwrite")
    assert (tmp_path / "corpus/README.md").read_text() == "mine"


def test_a_card_may_be_edited(tmp_path, source, capsys):
    corpus = build(source, tmp_path / "corpus")
    card = tmp_path / "corpus/README.md"
    first = card.read_text()
    assert f"\n{len(rows_of(corpus))} documents, " in first
    source.write_text("A text.\nAnother text.\nA third text.\n")
    build(source, tmp_path / "corpus", "--overwrite")
    second = card.read_text()
    assert second != first  # it has the numbers of its corpus
    edited = second.replace("configs:", "license: cc0-1.0\nconfigs:")
    card.write_text(edited)
    (tmp_path / "corpus/notes.txt").write_text("mine")
    capsys.readouterr()
    verify([str(tmp_path / "corpus")])
    notes = f"note: {tmp_path / 'corpus'}: notes.txt is not listed in MANIFEST.json\n"
    assert capsys.readouterr().err == notes
    build(source, tmp_path / "corpus", "--overwrite")
    assert card.read_text() == edited


def test_a_plan_for_a_sample_of_two_terabytes(tmp_path, capsys):
    texts = [f"A sentence that stays, number {n}." if n % 2 else "x" for n in range(1000)]
    source = write_lines(tmp_path / "pages.jsonl", texts)
    flags = [f"--input={source}", f"--output={tmp_path / 'corpus'}", "--min_words=3"]
    main([*flags, "--dry_run", "--assume_bytes=2TB"])
    said = " ".join(re.sub(r"│\n│ +│", "", capsys.readouterr().out).split())
    assert "29,803 (parquet)" in said and "a sample of 2.0 TB" in said
    assert re.search(r"kept │ about [\d,]+ of about [\d,]+, \d+% of the bytes read", said), said
    assert " CPU hours: " in said
    with pytest.raises(UsageError, match="it is for plans"):
        main([*flags, "--assume_bytes=2TB"])


# ---- report.html ----


def text_of(page):
    body = page[page.index("<body ") :]
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", body)))


def test_a_report_shows_funnel_samples_hosts_and_clusters(tmp_path):
    rng = random.Random(0)
    records = []
    for i in range(40):
        words = [f"word{rng.randrange(10**6)}" for _ in range(300)]
        for copy in range(1 + 3 * (i == 7)):
            text = " ".join([*words[:150], f"copy{copy}", *words[151:]])
            records.append({"text": text, "url": f"https://host{i % 2}.example/{i}/{copy}"})
    records += [{"text": "too <short>"}, {"text": records[0]["text"]}]
    records += [{"text": f"please write to {name}@b.co today"} for name in "acd"]
    source = write_lines(tmp_path / "source.jsonl", records)
    source.write_text(source.read_text() + "{broken\n")
    flags = ["--keep_fields=url", "--min_words=5", "--near_duplicates=jaccard:0.8", "--pii=replace"]
    corpus = build(source, tmp_path / "corpus", *flags)
    assert corpus.stats.funnel.edited_bytes == -3 and corpus.stats.broken_equations() == []
    page = (tmp_path / "corpus/report.html").read_text()
    text = text_of(page)
    assert "could not be written" not in text
    assert "41 of 49 documents kept" in text
    assert "41 of 48 documents were kept: " in text
    assert "Edits added 3 bytes." in text and "please write to <email> today" in text
    assert "too <short>" in text and "<short>" not in page
    assert "host0.example 20" in text and "host1.example 20" in text
    assert "3 removed" in text and "similarity 0.9" in text
    assert "broken JSON" in text
    assert "--config=DIR/config.yaml --num_files=1" in text
    assert str(tmp_path / "corpus") not in page
