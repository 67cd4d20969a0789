"""Rules in whole runs of build_corpus."""

import json
import re

import pytest

from pipelines.build_corpus import main
from pipelines.corpus.metadata import read_corpus
from schemas.drops import shorten
from schemas.errors import UsageError
from tests.tools.near_factory import digest_of


def arguments(source, output, *more):
    return [f"--input={source}", f"--output={output}", "--num_files=2", *more]


def files(output):
    """sha256 of every file of documents, from the manifest."""
    return {file.path: file.sha256 for file in read_corpus(str(output)).documents}


def test_what_filters_drop_is_counted_apart_from_what_is_refused(tmp_path, monkeypatch, capsys):
    source = tmp_path / "source.jsonl"
    lines = [json.dumps({"text": t}) for t in ("caf\u00e9 noir", "cafe\u0301 noir", "spam!", "x")]
    source.write_text("\n".join([*lines, "{broken"]) + "\n")
    (tmp_path / "chooser.py").write_text(
        "def choose(document):\n    return 'spam' if 'spam' in document['text'] else None\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    flags = ["--normalize=nfc", "--min_chars=2", "--filter=chooser:choose", "--max_rejects=1"]
    for name, more in {
        "plain": [],
        "runner": ["--shuffle_by=runner", "--keep_rejects"],
        "kept": ["--keep_rejects"],
    }.items():
        main(arguments(source, tmp_path / name, *flags, *more))
    out = capsys.readouterr().out
    assert re.search(r"filter:spam +1 ", out) and re.search(r"min_chars +1 ", out)
    corpus = read_corpus(str(tmp_path / "plain"))
    # Of the two that are equal after normalization one is a duplicate.
    due = {"filter:spam": 1, "min_chars": 1, "broken_json": 1, "duplicates": 1}
    assert corpus.stats.dropped == due
    assert corpus.stats.total().documents == 1
    assert corpus.stats.broken_equations() == []
    assert not (tmp_path / "plain/rejects/filtered.jsonl").exists()
    assert files(tmp_path / "plain") == files(tmp_path / "kept") == files(tmp_path / "runner")
    for name in ("kept", "runner"):
        kept = (tmp_path / name / "rejects/filtered.jsonl").read_text().splitlines()
        assert [json.loads(line) for line in kept] == [
            {"reason": "filter:spam", "path": str(source), "offset": 55, "text": "spam!"},
            {
                "reason": "min_chars",
                "measured": 1,
                "limit": 2,
                "path": str(source),
                "offset": 73,
                "text": "x",
            },
        ]
        for line in map(json.loads, kept):
            found = source.read_bytes()[line["offset"] :].splitlines()[0]
            assert json.loads(found)["text"] == line["text"]
        listed = {file.path for file in read_corpus(str(tmp_path / name)).manifest.files}
        assert "rejects/filtered.jsonl" in listed
    parameters = corpus.schema.parameters
    assert (parameters["normalize"], parameters["filter"]) == ("nfc", "chooser:choose")
    with pytest.raises(UsageError, match="min_chars"):
        main(arguments(source, tmp_path / "plain", *flags, "--min_chars=3"))


def test_rules_that_edit_and_count_are_in_the_statistics_and_the_schema(tmp_path):
    source = tmp_path / "source.jsonl"
    texts = ["Menu\nThe dog ran home over the hill.", "The cat came back in the morning."]
    texts += ["There is no end to this", "Der Hund ist schon lange nicht mehr da."]
    source.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    flags = ["--c4_line_ends=yes", "--language=en,de"]
    for name, more in {"made": [], "runner": ["--shuffle_by=runner"]}.items():
        main(arguments(source, tmp_path / name, *flags, *more))
    corpus = read_corpus(str(tmp_path / "made"))
    kept, dropped = corpus.stats.total().documents, corpus.stats.dropped
    assert kept + sum(dropped.values()) == 4 and dropped["c4:min_sentences"] == 1
    assert corpus.stats.observed["edited"] == {"c4": 1}
    assert corpus.stats.observed["edited_bytes"] == {"c4": len("Menu\n")}
    assert sum(corpus.stats.observed["language"].values()) == 4
    assert corpus.stats.broken_equations() == []
    assert files(tmp_path / "made") == files(tmp_path / "runner")
    main([f"--config={tmp_path}/made/config.yaml", f"--output={tmp_path / 'again'}"])
    assert files(tmp_path / "made") == files(tmp_path / "again")
    parameters = corpus.schema.parameters
    assert parameters["c4_line_ends"] == "yes" and "quality" not in parameters
    with pytest.raises(UsageError, match="c4_min_sentences"):
        main(arguments(source, tmp_path / "made", *flags, "--c4_min_sentences=2"))


def test_what_edits_take_is_measured_where_the_document_is_kept(tmp_path, monkeypatch):
    """C4 drops lines without an end; who is dropped after an edit counts as it was given."""

    def document(number):
        lines = [f"This is line {line} of document {number}, as said." for line in range(6)]
        return "\n".join([*lines, "a menu"])

    documents = [*map(document, range(30)), document(99) + "\nThis one is spam, as said."]
    source = tmp_path / "lines.jsonl"
    source.write_text("".join(json.dumps({"text": text}) + "\n" for text in documents))
    (tmp_path / "spam_chooser.py").write_text(
        "def choose(document):\n    return 'spam' if 'spam' in document['text'] else None\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    flags = ["--quality=c4", "--filter=spam_chooser:choose"]
    main(arguments(source, tmp_path / "corpus", *flags))
    stats = read_corpus(str(tmp_path / "corpus")).stats
    funnel = stats.funnel
    assert stats.broken_equations() == []
    assert (funnel.documents, funnel.edited_bytes) == (31, 30 * len("\na menu"))
    assert funnel.text_bytes == sum(len(text.encode()) for text in documents)
    removed = funnel.removed["filter:spam"]
    assert (removed.documents, removed.text_bytes) == (1, len(documents[-1]))
    assert removed.samples[0].document == digest_of(documents[-1]).hex()
    assert removed.samples[0].excerpt == shorten(documents[-1])
