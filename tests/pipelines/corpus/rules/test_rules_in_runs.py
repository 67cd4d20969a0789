"""Rules in whole runs of build_corpus."""

import json
import random

import pyarrow.parquet as pq
import pytest

from pipelines.build_corpus import main
from pipelines.corpus.metadata import read_corpus
from schemas.errors import DataError, UsageError
from tests.tools.quality_verdicts import WORDS

PAGE = "The old harbour has a long wall, and boats lie behind it in the winter. "


def write_pages(path, pages):
    lines = (json.dumps({"text": text, "link": url}) + "\n" for text, url in pages)
    path.write_text("".join(lines))


def texts_of(corpus):
    tables = [pq.read_table(f"{corpus.directory}/{file.path}") for file in corpus.documents]
    return sorted(text for table in tables for text in table["text"].to_pylist())


def test_addresses_and_personal_data(tmp_path):
    pages = [
        (PAGE, "https://good.com/"),
        (PAGE + "bad", "https://www.bad.com/a"),
        ("Write to a.b@c.org\r\nor call +47 22 85 50 50 from 8.8.8.8.", ""),
        ("<email> is kept", "http://x.org/casino"),
    ]
    write_pages(tmp_path / "pages.jsonl", pages)
    (tmp_path / "list.txt").write_text("bad.com\ncasino\n")
    flags = [f"--input={tmp_path}/pages.jsonl", f"--output={tmp_path}/corpus"]
    flags += [f"--url_blocklist={tmp_path}/list.txt", "--pii=replace", "--pii_phones"]
    with pytest.raises(UsageError, match="list.txt needs each document's url: --keep_fields=url"):
        main(flags)
    main([*flags, "--keep_fields=url:link"])
    corpus = read_corpus(f"{tmp_path}/corpus")
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
    (tmp_path / "novel.txt").write_text("\n\n".join([*paragraphs, PAGE * 3]))
    flags = [f"--input={tmp_path}/novel.txt", "--document=paragraph", "--quality=c4"]
    main([*flags, f"--output={tmp_path}/corpus", "--c4_min_sentences=2"])
    printed = " ".join(capsys.readouterr().out.split())
    assert (
        "c4:min_sentences drops 39 of the 40 documents that reach it: the documents may be short"
        in printed
    )
    assert "--c4_line_ends=no" in printed
    (tmp_path / "novel.txt").write_text("\n\n".join(paragraphs))
    with pytest.raises(
        DataError,
        match="no document is left.*39 documents that reach it: .*may be short.*C4 treat",
    ):
        main([*flags, f"--output={tmp_path}/none"])


@pytest.mark.parametrize("recipe", ["fineweb", "c4", "gopher", "multilingual"])
def test_a_recipe_runs(tmp_path, recipe):
    draw = random.Random(0)
    sentences = [" ".join(draw.sample(WORDS, 12)).capitalize() + "." for _ in range(40)]
    long = "\n".join(" ".join(sentences[n : n + 4]) for n in range(0, 40, 4))
    write_pages(tmp_path / "pages.jsonl", [(long, ""), (long + " More.", ""), ("Menu\nHome", "")])
    output = f"--output={tmp_path}/corpus"
    main([f"--config={recipe}", f"--input={tmp_path}/pages.jsonl", output])
    corpus = read_corpus(f"{tmp_path}/corpus")
    assert corpus.stats.total().documents in (1, 2)
    assert not any("Menu" in text for text in texts_of(corpus))
    assert corpus.stats.broken_equations() == []


def test_targets_are_brought_into_the_normal_form_of_documents(tmp_path):
    """U+0958 is no character of NFC: it becomes two."""
    question = "\u0958 \u0959 does cafe\u0301 noir come with milk today"
    write_pages(tmp_path / "pages.jsonl", [(f"Well, {question}?", ""), (PAGE, "")])
    (tmp_path / "questions.txt").write_text(question)
    flags = [f"--input={tmp_path}/pages.jsonl", f"--decontaminate={tmp_path}/questions.txt"]
    for form, due in (("nfc", {"contaminated": 1}), ("none", {"contaminated": 1})):
        main([*flags, f"--normalize={form}", f"--output={tmp_path}/{form}"])
        assert read_corpus(f"{tmp_path}/{form}").stats.dropped == due


def test_the_length_of_a_short_line_is_a_flag(tmp_path):
    """Lines of 20 characters are short among lines of up to 30, not of up to 19."""
    lines = [f"A line of 20 signs {n}." for n in range(1, 10)]
    write_pages(tmp_path / "pages.jsonl", [("\n".join(line[-20:] for line in lines), "")])
    flags = [f"--input={tmp_path}/pages.jsonl", "--fineweb_max_short_lines=0.67"]
    with pytest.raises(DataError, match="fineweb:max_short_lines"):
        main([*flags, f"--output={tmp_path}/short", "--fineweb_short_line=20"])
    main([*flags, f"--output={tmp_path}/long", "--fineweb_short_line=19"])
    assert len(texts_of(read_corpus(f"{tmp_path}/long"))) == 1
