"""Rules in whole runs of build_corpus."""

import random

import pytest

from schemas.errors import DataError, UsageError
from tests.tools.corpus_factory import build, texts_of, write_lines
from tests.tools.quality_verdicts import WORDS

PAGE = "The old harbour has a long wall, and boats lie behind it in the winter. "


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
    with pytest.raises(UsageError, match="list.txt needs each document's url: --keep_fields=url"):
        build(source, tmp_path / "corpus", *flags)
    corpus = build(source, tmp_path / "corpus", *flags, "--keep_fields=url:link")
    assert texts_of(corpus) == sorted([PAGE, "Write to <email>\nor call <phone> from <ip>."])
    assert corpus.stats.dropped == {"url_blocklist:domain": 1, "url_blocklist:word": 1}
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
        "c4:min_sentences drops 39 of the 40 documents that reach it: the documents may be short"
        in printed
    )
    assert "--c4_line_ends=no" in printed
    source.write_text("\n\n".join(paragraphs))
    with pytest.raises(
        DataError,
        match="no document is left.*39 documents that reach it: .*may be short.*C4 treat",
    ):
        build(source, tmp_path / "none", *flags)


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
    """U+0958 is no character of NFC: it becomes two."""
    question = "\u0958 \u0959 does cafe\u0301 noir come with milk today"
    source = write_lines(tmp_path / "pages.jsonl", [f"Well, {question}?", PAGE])
    (tmp_path / "questions.txt").write_text(question)
    flags = [f"--decontaminate={tmp_path}/questions.txt", f"--normalize={form}"]
    assert build(source, tmp_path / form, *flags).stats.dropped == {"contaminated": 1}


def test_the_length_of_a_short_line_is_a_flag(tmp_path):
    """Lines of 20 characters are short among lines of up to 30, not of up to 19."""
    lines = [f"A line of 20 signs {n}."[-20:] for n in range(1, 10)]
    source = write_lines(tmp_path / "pages.jsonl", ["\n".join(lines)])
    flag = "--fineweb_max_short_lines=0.67"
    with pytest.raises(DataError, match="fineweb:max_short_lines"):
        build(source, tmp_path / "short", flag, "--fineweb_short_line=20")
    assert len(texts_of(build(source, tmp_path / "long", flag, "--fineweb_short_line=19"))) == 1
