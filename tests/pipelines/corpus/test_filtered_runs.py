"""Rules in whole runs of build_corpus."""

import json
import random
import re

import pytest

from tests.benchmarks.scripts.quality_verdicts import WORDS
from tests.tools.corpus_factory import build, sums_of, texts_of, write_lines
from tests.tools.near_duplicates import digest_of
from textmill.schemas.errors import DataError, UsageError
from textmill.schemas.format.drops import shorten

SPAM = 'spam,\n"\0!'
PAGE = "The old harbour has a long wall, and boats lie behind it in the winter. "


@pytest.fixture
def spam_filter(tmp_path, monkeypatch):
    """The flag of a filter that drops spam."""
    (tmp_path / "chooser.py").write_text(
        "def choose(document):\n    return 'spam' if 'spam' in document['text'] else None\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    return "--filter=chooser:choose"


def test_what_filters_drop_is_counted_apart_from_what_is_refused(tmp_path, spam_filter, capsys):
    source = write_lines(tmp_path / "source.jsonl", ["café noir", "cafe\u0301 noir", SPAM, "x"])
    source.write_text(source.read_text() + "{broken\n")
    flags = ["--normalize=nfc", "--min_chars=2", spam_filter, "--max_rejects=1"]
    plain = build(source, tmp_path / "plain", *flags)
    out = capsys.readouterr().out
    assert re.search(r"filter:spam +1 ", out) and re.search(r"min chars +1 ", out)
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
            place | {"reason": "filter:spam", "offset": 55, "text": SPAM},
            place | {"reason": "min_chars", "measured": 1, "limit": 2, "offset": 84, "text": "x"},
        ]
        for line in map(json.loads, lines):
            found = source.read_bytes()[line["offset"] :].splitlines()[0]
            assert json.loads(found)["text"] == line["text"]
        assert "rejects/filtered.jsonl" in {file.path for file in kept.manifest.files}


def test_what_edits_take_is_measured_where_the_document_is_kept(tmp_path, spam_filter):
    """C4 drops lines without an end; who is dropped after an edit counts as it was given."""

    def document(number):
        lines = [f"This is line {line} of document {number}, as said." for line in range(6)]
        return "\n".join([*lines, "a menu"])

    documents = [*map(document, range(30)), document(99) + "\nThis one is spam, as said."]
    source = write_lines(tmp_path / "lines.jsonl", documents)
    stats = build(source, tmp_path / "corpus", "--quality=c4", spam_filter).stats
    funnel = stats.funnel
    assert stats.broken_equations() == []
    assert (funnel.documents, funnel.edited_bytes) == (31, 30 * len("\na menu"))
    assert funnel.text_bytes == sum(len(text.encode()) for text in documents)
    removed = funnel.removed["filter:spam"]
    assert (removed.documents, removed.text_bytes) == (1, len(documents[-1]))
    assert removed.samples[0].document == digest_of(documents[-1]).hex()
    assert removed.samples[0].excerpt == shorten(documents[-1])


def test_addresses_and_personal_data(tmp_path):
    pages = {
        "https://good.com/": PAGE,
        "https://www.bad.com/a": PAGE + "bad",
        "": "Write to a.b@c.org\r\nor call +47 22 85 50 50 from 8.8.8.8.",
        "http://x.org/casino": "<email> is kept",
    }
    records = [{"text": text, "link": url} for url, text in pages.items()]
    source = write_lines(tmp_path / "pages.jsonl", records)
    (tmp_path / "list.txt").write_text("bad.com\ncasino\n")
    flags = [f"--url_blocklist={tmp_path}/list.txt", "--pii=replace", "--pii_phones"]
    flags += ["--keep_rejects"]
    with pytest.raises(UsageError, match="list.txt needs each document's url: --keep_fields=url"):
        build(source, tmp_path / "corpus", *flags)
    corpus = build(source, tmp_path / "corpus", *flags, "--keep_fields=url:link")
    assert texts_of(corpus) == sorted([PAGE, "Write to <email>\nor call <phone> from <ip>."])
    assert corpus.stats.dropped == {"url_blocklist:domain": 1, "url_blocklist:word": 1}
    filtered = (tmp_path / "corpus/rejects/filtered.jsonl").read_text()
    assert '"measured": "bad.com", "limit": null' in filtered
    assert corpus.stats.observed["pii"] == {"email": 1, "ip": 1, "phone": 1}
    assert corpus.stats.observed["edited"] == {"pii": 1}
    assert corpus.stats.broken_equations() == []


def test_a_rule_that_takes_nearly_all_is_warned_of(tmp_path, capsys):
    """Paragraphs whose lines are wrapped at a fixed width, of which C4's rules leave nothing."""
    paragraphs = [
        f"It was {n} years ago that the\nferry came twice a day and\nnobody had a car"
        for n in range(1, 40)
    ]
    source = tmp_path / "novel.txt"
    source.write_text("\n\n".join([*paragraphs, PAGE * 3]))
    flags = ["--document=paragraph", "--quality=c4"]
    build(source, tmp_path / "corpus", *flags, "--c4_min_sentences=2")
    printed = " ".join(capsys.readouterr().out.split())
    assert (
        "c4:min_sentences drops 39 of the 40 documents that reach c4's rules: the documents "
        "may be short" in printed
    )
    assert "--c4_line_ends=no" in printed
    source.write_text("\n\n".join(paragraphs))
    with pytest.raises(
        DataError,
        match="no document is left.*39 documents that reach c4's rules: .*may be short.*C4 treat",
    ):
        build(source, tmp_path / "none", *flags)
    assert [path.name for path in (tmp_path / "none").iterdir()] == [".lock"]


@pytest.mark.parametrize("recipe", ["fineweb", "c4", "gopher", "multilingual"])
def test_a_recipe_runs(tmp_path, recipe):
    draw = random.Random(0)
    sentences = [" ".join(draw.sample(WORDS, 12)).capitalize() + "." for _ in range(40)]
    long = "\n".join(" ".join(sentences[n : n + 4]) for n in range(0, 40, 4))
    source = write_lines(tmp_path / "pages.jsonl", [long, long + " More.", "Menu\nHome"])
    corpus = build(source, tmp_path / "corpus", f"--config={recipe}")
    assert corpus.stats.total().documents in (1, 2)
    assert not any("Menu" in text for text in texts_of(corpus))
    assert corpus.stats.broken_equations() == []


@pytest.mark.parametrize("form", ["nfc", "none"])
def test_targets_are_brought_into_the_normal_form_of_documents(tmp_path, form):
    """U+0958 is not a character of NFC: it becomes two."""
    question = "\u0958 \u0959 does cafe\u0301 noir come with milk today"
    source = write_lines(tmp_path / "pages.jsonl", [f"Well, {question}?", PAGE])
    (tmp_path / "questions.txt").write_text(question)
    flags = [f"--decontaminate={tmp_path}/questions.txt", f"--normalize={form}"]
    assert build(source, tmp_path / form, *flags).stats.dropped == {"contaminated": 1}
