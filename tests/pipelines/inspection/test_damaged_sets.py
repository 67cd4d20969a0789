"""Damaged datasets, as their files are and under sums that were corrected: the file is named.

A single file of ids under right sums is as good as another with as many documents and tokens; the
files of a dataset in several formats are compared with each other.
"""

import os
import random
import shutil
from pathlib import Path

import pytest

from tests.tools.set_damage import BYTES, DOCUMENTS, FILES, ROWS, Damage, damage, documents_of
from tests.tools.shard_factory import (
    mlm_schema,
    packed_rows,
    replace_file,
    write_mlm_set,
    write_set,
)
from textmill.pipelines import export, inspect_shards
from textmill.pipelines.build_shards import main
from textmill.pipelines.inspection.checks.set_check import verify_dataset
from textmill.pipelines.writers.document_formats import Megatron, Npy
from textmill.schemas.errors import DataError
from textmill.schemas.files.finished import read_dataset
from textmill.schemas.format.records import DOCUMENT_FORMATS, frame
from textmill.trainers.reader import ShardSet

SHARD = "train-00000-of-00002"
TRIES = 9  # some change nothing
# A file of gigabytes takes its time.
OF_FILES = sorted({**BYTES, **FILES}.keys() - {"extra", "sparse growth"})
OF_COUNTS = ["cut document", "drop item", "repeat item", "no items", "swap files", "copy over"]


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """A dataset of rows in both formats."""
    directory = tmp_path_factory.mktemp("sets") / "rows"
    write_mlm_set(directory, file_formats=("array_record", "tfrecord"))
    return directory


@pytest.fixture(scope="module")
def documents(topics, tokenizer_path, tmp_path_factory):
    """Datasets of tokenized documents by format, and one of all formats by the name `all`."""
    folder = tmp_path_factory.mktemp("sets")
    texts = sorted({text[:900] for text in topics if "\n" not in text[:900] and text})[:60]
    (folder / "in.txt").write_text("\n".join(" ".join(text.split()) for text in texts))
    for name in (*DOCUMENT_FORMATS, "all"):
        formats = ",".join(DOCUMENT_FORMATS) if name == "all" else name
        flags = [f"--input={folder / 'in.txt'}", "--document=line", f"--tokenizer={tokenizer_path}"]
        flags += [f"--output={folder / name}", f"--file_format={formats}", "--max_length=50"]
        main(["--task=tokens", "--num_shards=2", *flags])
    return folder


def damaged(pristine, folder, *chosen):
    """A damaged copy."""
    for seed in range(TRIES):
        directory = folder / chosen[0] / str(seed)
        if damage(pristine, directory, Damage(*chosen), random.Random(seed)):
            return directory
    raise AssertionError(f"{chosen} changes nothing")


def problems_of(directory):
    try:
        return "\n".join(verify_dataset(str(directory)).problems)
    except DataError as error:
        return str(error)


def files_of(pristine):
    """The metadata files, and a shard in each format."""
    files = read_dataset(str(pristine)).manifest.files
    return [file.path for file in files if file.split is None or SHARD in file.path]


def some_of(pristine, way):
    """The shards, and every third metadata file, others for each way."""
    files = files_of(pristine)
    shards = [name for name in files if SHARD in name]
    return shards + [name for name in files if name not in shards][OF_FILES.index(way) % 3 :: 3]


@pytest.mark.parametrize("way", OF_FILES)
def test_each_file_that_is_not_as_published_is_named_by_verify(rows, documents, tmp_path, way):
    for pristine in (rows, documents / "all"):
        for name in some_of(pristine, way):
            found = problems_of(damaged(pristine, tmp_path / pristine.name, name, way, "as is"))
            assert name in found, (name, found)


@pytest.mark.parametrize("way", OF_FILES)
def test_each_file_that_is_not_as_published_is_refused_by_the_reader(rows, tmp_path, way):
    for name in files_of(rows):
        if not name.endswith(".array_record"):  # the format that is not read
            directory = damaged(rows, tmp_path, name, way, "as is")
            with pytest.raises(DataError, match=name):
                shards = ShardSet(str(directory), file_format="tfrecord")
                list(shards.sequential_batches("train", batch_size=64))


@pytest.mark.parametrize("suffix", ["array_record", "tfrecord"])
@pytest.mark.parametrize("way", sorted(ROWS.keys() - {"extra"}))
def test_rows_that_differ_from_the_other_format_are_named_under_right_sums(
    rows, tmp_path, suffix, way
):
    assert SHARD in problems_of(damaged(rows, tmp_path, f"{SHARD}.{suffix}", way, "all"))


def is_a_change(name, way):
    """Flat files do not record where documents begin, and no manifest lists an empty file."""
    is_flat = name in ("npy", "llmc")
    return not (is_flat and way == "merge documents" or name == "npy" and way == "no items")


OF_DOCUMENTS = [("all", way) for way in sorted(DOCUMENTS.keys() - {"missing", "extra"})]
OF_DOCUMENTS += [("one", way) for way in OF_COUNTS]


@pytest.mark.parametrize(("formats", "way"), OF_DOCUMENTS)
@pytest.mark.parametrize("name", DOCUMENT_FORMATS)
def test_documents_of_one_format_are_named_under_right_sums(
    documents, tmp_path, name, formats, way
):
    """If all formats are there, or if this one has other counts."""
    if not is_a_change(name, way):
        return
    pristine = documents / (name if formats == "one" else "all")
    file = f"{SHARD}.{DOCUMENT_FORMATS[name].endings[0]}"
    directory = damaged(pristine, tmp_path, file, way, "all")
    if name == "array_record" and way == "merge documents":  # the same ids, cut elsewhere
        schema = read_dataset(str(pristine)).schema
        due, found = (documents_of(d, file, schema).values for d in (pristine, directory))
        assert due.tolist() == found.tolist()
    else:
        found = problems_of(directory)
        assert SHARD in found and (name in found or file in found)


@pytest.mark.parametrize("with_ids", [False, True])
def test_an_index_of_another_type(documents, tmp_path, with_ids):
    """As it is, and with ids of that type beside it."""
    directory, pristine = tmp_path / "set", documents / "megatron"
    shutil.copytree(pristine, directory)
    schema = read_dataset(str(pristine)).schema
    values, offsets = documents_of(pristine, f"{SHARD}.megatron.bin", schema)
    ids = values.astype("<i4" if with_ids else "<u2").tobytes()
    replace_file(directory, f"{SHARD}.megatron.bin", ids)
    replace_file(directory, f"{SHARD}.megatron.idx", Megatron._index(offsets, 4, 4))
    assert f"{SHARD}.megatron.idx is not as Textmill writes it" in problems_of(directory)


def test_flipped_bits_of_records_are_found(documents, tmp_path):
    """Except in the filling of a block, and in the signature before the first chunk."""
    pristine, name = documents / "array_record", f"{SHARD}.array_record"
    schema, draw, found = read_dataset(str(pristine)).schema, random.Random(1), 0
    due, content = documents_of(pristine, name, schema), (pristine / name).read_bytes()
    end = len(content[: 1 << 16].rstrip(b"\0"))
    for at in [*range(64), *draw.sample(range(64, end), 300), len(content) - 1]:
        changed = bytearray(content)
        changed[at] ^= 1 << draw.randrange(8)
        (tmp_path / name).write_bytes(changed)
        try:
            read = documents_of(tmp_path, name, schema)
        except DataError as error:
            assert name in str(error)
            found += 1
        else:
            assert [a.tolist() for a in read] == [a.tolist() for a in due]
    assert found > 290


def test_a_file_of_another_size_is_not_read(documents, tmp_path, monkeypatch):
    """It may be of any size: a file that grew to gigabytes is hashed, but not decoded."""
    directory = damaged(documents / "npy", tmp_path, f"{SHARD}.ids.bin", "append", "as is")
    decode, read = Npy.decode, []

    def note(own, paths, schema):
        read.extend(os.path.basename(path) for path in paths.values())
        return decode(own, paths, schema)

    monkeypatch.setattr(Npy, "decode", note)
    assert f"{SHARD}.ids.bin has " in problems_of(directory)
    assert f"{SHARD}.ids.bin" not in read and "train-00001-of-00002.ids.bin" in read


def mask_beyond_its_row(path, schema, columns):
    columns["masked_positions"][5, 0] = schema.max_length
    content = frame(schema.codec().encode(columns)).tobytes()
    replace_file(path.parent, path.name, content)


def swap_shards(path, *_):
    """Each is right by itself, and of the size that the other has."""
    other = path.with_name(f"validation{path.name.removeprefix('train')}")
    path.rename("kept")
    other.rename(path)
    Path("kept").rename(other)


def swap_rows(path, schema, _):
    framed, content = schema.codec().stride + 16, path.read_bytes()
    path.write_bytes(content[framed : 2 * framed] + content[:framed] + content[2 * framed :])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (mask_beyond_its_row, "row 5 has a masked position beyond its 16 tokens; copy or build"),
        (swap_shards, "was changed after it was published"),
        (swap_rows, "was changed after it was published"),
    ],
)
@pytest.mark.parametrize(
    ("read", "flags"),
    [
        (inspect_shards.main, ["--row=5"]),
        (inspect_shards.main, ["--search=w7"]),
        (export.main, ["--to=jsonl", "--unmask", "--output=export"]),
    ],
)
def test_damaged_rows_are_neither_shown_nor_exported(
    tmp_path, monkeypatch, read, flags, change, said
):
    """Sizes are right, and of what cannot be trained on all sums too."""
    monkeypatch.chdir(tmp_path)
    schema = mlm_schema(shards={"train": 1, "validation": 1})
    columns = {split: packed_rows(schema, 8, seed) for seed, split in enumerate(schema.splits)}
    write_set(Path("set"), schema, columns)
    change(Path("set/train-00000-of-00001.tfrecord"), schema, columns["train"])
    with pytest.raises(DataError, match=f"train-00000-of-00001.tfrecord:? {said}"):
        read(["set", *flags])
    assert {*Path("export").glob("**/*")} <= {Path("export/.lock")}
