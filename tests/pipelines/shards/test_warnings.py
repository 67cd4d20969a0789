"""Warnings of a finished run, on small corpora that deserve them and on one that does not."""

import itertools
import json
import re

import pytest
from rich.filesize import decimal

from tests.tools.filter_factory import column
from textmill.pipelines import build_corpus
from textmill.pipelines.build_shards import main
from textmill.pipelines.rows.routing import Routes, content_digests
from textmill.schemas.files.finished import read_dataset

WORDS = "one two three four five six seven eight nine ten"


def warnings_of(
    capsys, tokenizer_path, tmp_path, content: str, *flags: str, splits: str = "train:1"
) -> list[str]:
    path = tmp_path / "text.txt"
    path.write_bytes(content.encode())
    places = [f"--input={path}", f"--tokenizer={tokenizer_path}", f"--output={tmp_path / 'set'}"]
    usual = ["--task=clm", "--document=line", "--max_length=32", "--num_shards=1"]
    main([*places, *usual, f"--splits={splits}", *flags])
    shown = " ".join(capsys.readouterr().out.split())
    return [part.split(" inspect it:")[0] for part in shown.split("warning: ")[1:]]


def test_text_without_faults_has_no_warning(capsys, tokenizer_path, tmp_path):
    text = "".join(f"{WORDS} {n}\n\n" for n in range(50))
    assert warnings_of(capsys, tokenizer_path, tmp_path, text, "--document=paragraph") == []


def test_line_ends_of_windows(capsys, tokenizer_path, tmp_path):
    """Between lines of a paragraph; at the end of a document the reader takes them away."""
    text = "".join(f"{WORDS}\r\n{WORDS} {n}\r\n\r\n" for n in range(50))
    [warning] = warnings_of(capsys, tokenizer_path, tmp_path, text, "--document=file")
    assert "of all tokens contain a carriage return" in warning and "sed -i" in warning


def test_a_book_that_is_one_paragraph(capsys, tokenizer_path, tmp_path):
    book = "".join(f"{WORDS} {n}\n" for n in range(6000))
    text = "a few words\n\n" * 3 + book
    [warning] = warnings_of(capsys, tokenizer_path, tmp_path, text, "--document=paragraph")
    assert warning.startswith("1 document of 32,768 tokens and more has ")
    assert "--document=line or file" in warning


def test_one_file_leaves_a_split_empty(capsys, tokenizer_path, tmp_path):
    splits, given = "train:0.98,validation:0.02", (capsys, tokenizer_path, tmp_path)
    [warning] = warnings_of(*given, "One.\nTwo.\nOne.\n", "--document=file", splits=splits)
    assert (
        warning.startswith("the split validation is empty: ")
        and "1 document was kept; use --document=paragraph, or name the files" in warning
    )
    [warning] = warnings_of(*given, "One.\nTwo.\n", "--overwrite", splits=splits)
    assert "2 documents were kept; name the files" in warning


def texts_of_routes(routes: dict[str, list[int]]) -> list[str]:
    """Texts of as many words as given, whose hashes assign them to splits of 98 and 2 %."""
    splits = Routes({"train": 0.98, "validation": 0.02}, {"train": 1, "validation": 1})
    numbers, texts = itertools.count(), []
    for route, name in enumerate(splits.split_names()):
        for words in routes[name]:
            drawn = (f"{n} {'word ' * (words - 1)}end" for n in numbers)
            texts.append(next(t for t in drawn if splits.of(content_digests(column([t]))) == route))
    return texts


def test_three_texts_of_which_one_is_for_validation(capsys, tokenizer_path, tmp_path):
    """The README's path: a corpus of three files, then shards; and shards of the files."""
    (tmp_path / "texts").mkdir()
    for n, text in enumerate(texts_of_routes({"train": [99, 99], "validation": [99]})):
        (tmp_path / f"texts/{n}.txt").write_text(text)
    texts, corpus = str(tmp_path / "texts"), str(tmp_path / "corpus")
    build_corpus.main([f"--input={texts}", f"--output={corpus}"])
    for source, remedy in (
        (corpus, "build the corpus again with --document=paragraph, or give more documents"),
        (texts, "use --document=paragraph, or give more documents"),
    ):
        capsys.readouterr()
        flags = [f"--input={source}", f"--tokenizer={tokenizer_path}", "--task=clm", "--overwrite"]
        main([*flags, f"--output={tmp_path / 'set'}"])
        [_, warning] = words_of(capsys).split("warning: ")
        train, validation = shares_of(tmp_path / "set")
        assert 0.3 < validation < 0.36
        assert warning.startswith(
            "shares of the tokens are far from those of --splits (train has "
            f"{100 * train:.1f} % instead of 98 %, validation has {100 * validation:.1f} % instead "
            "of 2 %): a hash of a document's text chooses its split, and 3 documents were kept, "
            f"so single long documents decide; {remedy}"
        )


def shares_of(directory) -> list[float]:
    """The shares of train and validation of all tokens."""
    stats = read_dataset(str(directory)).stats
    return [stats.split(s).tokens / stats.total().tokens for s in ("train", "validation")]


@pytest.mark.parametrize(
    ("lengths", "between", "warns"),
    [
        ({"train": [10] * 98, "validation": [10, 10]}, (0.01, 0.03), False),
        ({"train": [10] * 98, "validation": [300, 10]}, (0.2, 0.3), True),
        ({"train": [10] * 90 + [9000], "validation": [2]}, (0.0001, 0.001), True),
    ],
)
def test_a_split_of_few_long_documents(capsys, tokenizer_path, tmp_path, lengths, between, warns):
    text = "\n".join(texts_of_routes(lengths))
    splits = "train:0.98,validation:0.02"
    warnings = warnings_of(capsys, tokenizer_path, tmp_path, text, splits=splits)
    _, validation = shares_of(tmp_path / "set")
    assert between[0] < validation < between[1]
    assert len(warnings) == warns
    shown = f"validation has {100 * validation:.3g} % instead of 2 %): a hash"
    assert all(
        shown in warning and "; give more documents, or name the files" in warning
        for warning in warnings
    )


def test_documents_of_train_that_validation_has_leave_it_empty(capsys, tokenizer_path, tmp_path):
    (tmp_path / "same.txt").write_text("One.\nTwo.\n")
    given = [f"--{split}_input={tmp_path}/same.txt" for split in ("train", "validation")]
    main([*given, f"--tokenizer={tokenizer_path}", f"--output={tmp_path / 'set'}"])
    warning = "warning: the split train is empty: no document of --train_input was kept (those that"
    assert warning in words_of(capsys)


def test_plan_and_summary_report_what_a_document_was(capsys, tokenizer_path, tmp_path):
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text(f"{name}\n* * *\n")
    flags = [f"--input={tmp_path}/*.txt", f"--tokenizer={tokenizer_path}"]
    flags += [f"--output={tmp_path / 'set'}", "--splits=train:1"]
    note = "each text file is one document (--document=file)"
    main([*flags, "--dry_run"])
    assert f"documents │ 2; {note}" in words_of(capsys)
    main(flags)
    said = words_of(capsys)
    assert f"documents │ 2 read, 2 kept; {note}" in said
    assert "text per second" not in said  # of 14 bytes
    info = read_dataset(str(tmp_path / "set"))
    size = decimal(sum(file.bytes for file in info.manifest.files if file.is_shard))
    assert f"size │ {size} in 1 shard file, " in said
    main([*flags, "--document=line", "--overwrite"])
    said = words_of(capsys)
    assert "4 read, 3 kept; each line of a text file is one document (--document=line)" in said


def words_of(capsys) -> str:
    """The printed text, without the frame and line breaks of a table."""
    return " ".join(re.sub(r"│\n│ +│", "", capsys.readouterr().out).split())


def few_words(document):
    """A filter of the user's."""
    return "few words" if document["text"].count(" ") < 4 else None


def test_a_filter_that_drops_much(capsys, tokenizer_path, tmp_path):
    text = "".join("short\n" if n % 2 else f"{WORDS} {n}\n" for n in range(100))
    name = "--filter=tests.pipelines.shards.test_warnings:few_words"
    [warning] = warnings_of(capsys, tokenizer_path, tmp_path, text, name)
    assert warning.startswith("--filter drops 50% of all documents as filter:few words: check what")
    assert json.loads((tmp_path / "set" / "stats.json").read_text())["documents_rejected"] == {
        "filter:few words": 50
    }
