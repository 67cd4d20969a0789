"""Documents whole: every format holds the very tokens of `tokenizers`, and each document once."""

import re
import shutil
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from tests.tools.shard_factory import replace_file
from textmill.pipelines.build_shards import main
from textmill.pipelines.export import main as export
from textmill.pipelines.inspect_shards import main as inspect
from textmill.pipelines.inspection.checks.set_check import verify_dataset
from textmill.pipelines.writers.document_formats import open_documents
from textmill.schemas.errors import UsageError
from textmill.schemas.files.finished import read_dataset
from textmill.schemas.format.records import DOCUMENT_FORMATS
from textmill.trainers.reader import ShardSet

ALL = ",".join(DOCUMENT_FORMATS)
BOS, EOS = 0, 2


def build(corpus, tokenizer_path, output, *flags, shards="2"):
    given = [f"--input={corpus}", f"--tokenizer={tokenizer_path}", f"--output={output}"]
    main(["--task=tokens", *given, f"--num_shards={shards}", *flags])
    assert verify_dataset(str(output)).problems == []
    return read_dataset(str(output))


@pytest.fixture(scope="module")
def made(corpus, tokenizer_path, tmp_path_factory):
    """A set in all formats, whose records have at most 50 tokens."""
    output = tmp_path_factory.mktemp("tokens") / "set"
    return build(corpus, tokenizer_path, output, f"--file_format={ALL}", "--max_length=50")


@pytest.fixture(scope="module")
def due(topics, tokenizer_path):
    """The documents as `tokenizers` encodes them, each with eos."""
    tokenizer = Tokenizer.from_file(tokenizer_path)
    texts = sorted(set(filter(None, topics)))
    encoded = tokenizer.encode_batch(texts, add_special_tokens=False)
    return sorted([*each.ids, EOS] for each in encoded)


def documents(info, name):
    """The documents or pieces of each shard."""
    found = []
    for split in info.schema.splits:
        for file in info.manifest.shards(split, DOCUMENT_FORMATS[name].endings[0]):
            values, offsets = open_documents(info.schema, file.path, info.locate)
            bounds = zip(offsets, offsets[1:], strict=False)
            found.append([values[a:b].tolist() for a, b in bounds])
    return found


def test_documents_of_every_format_are_those_of_the_tokenizer(made, due):
    for name in ("megatron", "npy", "llmc"):
        assert sorted(sum(documents(made, name), [])) == due
    shards = zip(documents(made, "megatron"), documents(made, "array_record"), strict=True)
    for whole, pieces in shards:  # long ones are records that follow one another
        assert pieces == [ids[i : i + 50] for ids in whole for i in range(0, len(ids), 50)]
        assert len(pieces) > len(whole)
    total = made.stats.total()
    assert total.documents == total.rows == total.specials_added == len(due)
    assert total.tokens_in_rows == sum(map(len, due)) == total.tokens + len(due)
    assert made.stats.documents_read == len(due) + made.stats.all_dropped()["duplicates"]


@pytest.mark.parametrize(
    ("flags", "names", "bos"),
    [
        (["--bos", "--no_eos"], ["llmc", "npy"], [BOS]),  # as llm.c has it
        (["--no_eos", "--max_length=10000"], ["megatron", "array_record"], []),
    ],
)
def test_specials_are_those_that_flags_name(
    corpus, tokenizer_path, tmp_path, due, flags, names, bos
):
    flags = [*flags, f"--file_format={','.join(names)}"]
    info = build(corpus, tokenizer_path, tmp_path / "set", *flags)
    for name in names:
        assert sorted(sum(documents(info, name), [])) == sorted([*bos, *ids[:-1]] for ids in due)


@pytest.mark.parametrize("name", DOCUMENT_FORMATS)
def test_a_document_is_shown_and_found(corpus, tokenizer_path, tmp_path, capsys, name):
    flags = [f"--file_format={name}", "--max_length=60000"]
    info = build(corpus, tokenizer_path, tmp_path / "set", *flags)
    tokenizer = Tokenizer.from_file(tokenizer_path)
    split = sorted(info.schema.splits)[0]
    ids = documents(info, name)[0][3]
    text = tokenizer.decode(ids).split("\n")[0][:30]
    capsys.readouterr()
    inspect([info.directory, f"--split={split}", "--row=3"])
    said = capsys.readouterr().out
    assert f"{len(ids)} tokens in 1 segment, 0 padding" in said and "tokenized documents" in said
    inspect([info.directory, f"--search={text}"])
    assert f"{split} 3 [1]" in capsys.readouterr().out
    page = Path(info.locate("report.html")).read_text()
    assert "could not be written" not in page and f"documents in {name} files" in page


def test_rows_are_refused_with_who_reads_the_files(made, tmp_path):
    told = "has tokenized documents, not rows; .*megatron by megatron-core's IndexedDataset"
    with pytest.raises(UsageError, match=told):
        ShardSet(made.directory)
    with pytest.raises(UsageError, match=told):
        export([made.directory, "--to=parquet", f"--output={tmp_path}"])


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--file_format=tfrecord"], "one or more of megatron, array_record, npy, llmc for"),
        (["--file_format=npy,npy"], "each once"),
        (["--file_format=both"], "one or more of"),
        (["--file_format="], "one or more of"),
        (
            ["--task=clm", "--file_format=npy"],
            "one or more of array_record, tfrecord for the task clm",
        ),
        (["--file_format=npy", "--no_eos"], "no token would separate documents"),
        (["--file_format=llmc", "--no_eos"], "no token would separate documents"),
    ],
)
def test_formats_that_cannot_be(corpus, tokenizer_path, tmp_path, flags, told):
    with pytest.raises(UsageError, match=told):
        build(corpus, tokenizer_path, tmp_path / "set", *flags)
    assert not (tmp_path / "set").exists()


def test_shards_without_documents_are_files(tokenizer_path, tmp_path):
    (tmp_path / "few.txt").write_text("one\ntwo\nthree\n")
    given = (tmp_path / "few.txt", tokenizer_path, tmp_path / "set")
    flags = ["--document=line", f"--file_format={ALL}"]
    info = build(*given, *flags, shards="train:9,validation:1")
    for name in DOCUMENT_FORMATS:
        assert sum(map(len, documents(info, name))) == 3
        assert len(documents(info, name)) == 10


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda ids: b"\xff\xff" + ids[2:], "has an id 65535, not below"),
        (lambda ids: ids[2:4] + ids[:2] + ids[4:], "npy: token 0 differs from .* as array_record"),
        (lambda ids: ids[:-2] + b"\x09\0", "ends with id 9, not 2"),
    ],
)
def test_damage_under_a_right_manifest_is_found(made, tmp_path, change, told):
    directory = tmp_path / "set"
    shutil.copytree(made.directory, directory)
    name = "train-00000-of-00002.ids.bin"
    replace_file(directory, name, change((directory / name).read_bytes()))
    problems = verify_dataset(str(directory)).problems
    assert problems
    assert any(re.search(told, problem) for problem in problems), problems
