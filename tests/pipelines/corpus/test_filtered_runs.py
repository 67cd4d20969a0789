"""Rules in whole runs of build_corpus."""

import json
import re

import pytest

from schemas.drops import shorten
from schemas.errors import UsageError
from tests.tools.corpus_factory import build, sums_of, write_lines
from tests.tools.near_duplicates import digest_of


def test_what_filters_drop_is_counted_apart_from_what_is_refused(tmp_path, monkeypatch, capsys):
    source = write_lines(tmp_path / "source.jsonl", ["café noir", "cafe\u0301 noir", "spam!", "x"])
    source.write_text(source.read_text() + "{broken\n")
    (tmp_path / "chooser.py").write_text(
        "def choose(document):\n    return 'spam' if 'spam' in document['text'] else None\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    flags = ["--normalize=nfc", "--min_chars=2", "--filter=chooser:choose", "--max_rejects=1"]
    plain = build(source, tmp_path / "plain", *flags)
    out = capsys.readouterr().out
    assert re.search(r"filter:spam +1 ", out) and re.search(r"min_chars +1 ", out)
    # Two are equal after normalization.
    due = {"filter:spam": 1, "min_chars": 1, "broken_json": 1, "duplicates": 1}
    assert plain.stats.dropped == due
    assert plain.stats.total().documents == 1
    assert plain.stats.broken_equations() == []
    assert not (tmp_path / "plain/rejects/filtered.jsonl").exists()
    parameters = plain.schema.parameters
    assert (parameters["normalize"], parameters["filter"]) == ("nfc", "chooser:choose")
    with pytest.raises(UsageError, match="min_chars"):
        build(source, tmp_path / "plain", *flags, "--min_chars=3")
    for shuffle_by in ("runner", "files"):
        output = tmp_path / shuffle_by
        kept = build(source, output, *flags, "--keep_rejects", f"--shuffle_by={shuffle_by}")
        assert sums_of(kept) == sums_of(plain)
        lines = (output / "rejects/filtered.jsonl").read_text().splitlines()
        place = {"path": str(source)}
        assert [json.loads(line) for line in lines] == [
            place | {"reason": "filter:spam", "offset": 55, "text": "spam!"},
            place | {"reason": "min_chars", "measured": 1, "limit": 2, "offset": 73, "text": "x"},
        ]
        for line in map(json.loads, lines):
            found = source.read_bytes()[line["offset"] :].splitlines()[0]
            assert json.loads(found)["text"] == line["text"]
        assert "rejects/filtered.jsonl" in {file.path for file in kept.manifest.files}


def test_what_edits_take_is_measured_where_the_document_is_kept(tmp_path, monkeypatch):
    """C4 drops lines without an end; who is dropped after an edit counts as it was given."""

    def document(number):
        lines = [f"This is line {line} of document {number}, as said." for line in range(6)]
        return "\n".join([*lines, "a menu"])

    documents = [*map(document, range(30)), document(99) + "\nThis one is spam, as said."]
    source = write_lines(tmp_path / "lines.jsonl", documents)
    (tmp_path / "spam_chooser.py").write_text(
        "def choose(document):\n    return 'spam' if 'spam' in document['text'] else None\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    flags = ["--quality=c4", "--filter=spam_chooser:choose"]
    stats = build(source, tmp_path / "corpus", *flags).stats
    funnel = stats.funnel
    assert stats.broken_equations() == []
    assert (funnel.documents, funnel.edited_bytes) == (31, 30 * len("\na menu"))
    assert funnel.text_bytes == sum(len(text.encode()) for text in documents)
    removed = funnel.removed["filter:spam"]
    assert (removed.documents, removed.text_bytes) == (1, len(documents[-1]))
    assert removed.samples[0].document == digest_of(documents[-1]).hex()
    assert removed.samples[0].excerpt == shorten(documents[-1])
