"""Whole documents that were damaged, as their files lie and under sums that were made right.

`verify` names the file. Where no sum tells, a lone file of ids is as good as another of as many
documents and tokens; a set in several formats is not.
"""

import os
import random
import shutil

import numpy as np
import pytest

from pipelines.build_shards import main
from pipelines.inspection.checks.set_check import verify_set
from pipelines.rows.ragged import Ragged
from pipelines.writers.document_formats import megatron, npy
from schemas.errors import DataError
from schemas.records import DOCUMENT_FORMATS
from tests.tools.set_damage import (
    BYTES,
    DOCUMENTS,
    FILES,
    Damage,
    damage,
    documents_of,
    format_of,
    manifest_of,
    schema_of,
)
from tests.tools.shard_factory import replace_file

SHARD = "train-00000-of-00002"
TRIES = 9  # some change nothing
ENDINGS = [ending for row in DOCUMENT_FORMATS.values() for ending in row.endings]
OF_IDS = sorted(DOCUMENTS.keys() - {"missing", "extra"})
OF_COUNTS = sorted({*OF_IDS} - {"flip", "swap documents", "merge documents"})


@pytest.fixture(scope="module")
def sets(topics, tokenizer_path, tmp_path_factory):
    """By format, and one of all formats by the name `all`."""
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
        return "\n".join(verify_set(str(directory)).problems)
    except DataError as error:
        return str(error)


# A file of gigabytes takes its time.
@pytest.mark.parametrize("way", sorted({**BYTES, **FILES}.keys() - {"extra", "sparse growth"}))
def test_a_file_that_is_not_as_it_was_published_is_named(sets, tmp_path, way):
    for ending in ENDINGS:
        name = f"{SHARD}.{ending}"
        assert name in problems_of(damaged(sets / "all", tmp_path, name, way, "as is"))


def is_a_change(name, way):
    """Flat files have no places of documents, and the manifest knows that no file is empty."""
    is_flat = name in ("npy", "llmc")
    return not (is_flat and way == "merge documents" or name == "npy" and way == "no documents")


@pytest.mark.parametrize("way", OF_IDS)
@pytest.mark.parametrize("name", DOCUMENT_FORMATS)
def test_another_of_several_formats_is_named_under_right_sums(sets, tmp_path, name, way):
    if not is_a_change(name, way):
        return
    pristine, file = sets / "all", f"{SHARD}.{DOCUMENT_FORMATS[name].endings[0]}"
    directory = damaged(pristine, tmp_path, file, way, "all")
    if name == "array_record" and way == "merge documents":  # the same ids, cut elsewhere
        due, found = (documents_of(d, file, schema_of(d)).values for d in (pristine, directory))
        assert due.tolist() == found.tolist()
    else:
        said = problems_of(directory)
        assert SHARD in said and (name in said or file in said)


@pytest.mark.parametrize("way", OF_COUNTS)
@pytest.mark.parametrize("name", DOCUMENT_FORMATS)
def test_other_counts_of_one_format_are_named_under_right_sums(sets, tmp_path, name, way):
    if not is_a_change(name, way):
        return
    file = f"{SHARD}.{DOCUMENT_FORMATS[name].endings[0]}"
    said = problems_of(damaged(sets / name, tmp_path, file, way, "all"))
    assert SHARD in said and (name in said or file in said)


@pytest.mark.parametrize("with_ids", [False, True])
def test_an_index_of_another_type(sets, tmp_path, with_ids):
    """As it is, and with ids of that type beside it."""
    directory, pristine = tmp_path / "set", sets / "megatron"
    shutil.copytree(pristine, directory)
    documents = documents_of(pristine, f"{SHARD}.megatron.bin", schema_of(pristine))
    ids = documents.values.astype("<i4" if with_ids else "<u2").tobytes()
    replace_file(directory, f"{SHARD}.megatron.bin", ids)
    index = megatron._index(documents.offsets, 4, 4)
    replace_file(directory, f"{SHARD}.megatron.idx", index)
    assert f"{SHARD}.megatron.idx is not as Textmill writes it" in problems_of(directory)


def test_flipped_bits_of_records_are_told(sets, tmp_path):
    """But for what fills a block up, and the signature before the first chunk."""
    pristine, name = sets / "array_record", f"{SHARD}.array_record"
    schema, draw, told = schema_of(pristine), random.Random(1), 0
    due, content = documents_of(pristine, name, schema), (pristine / name).read_bytes()
    end = len(content[: 1 << 16].rstrip(b"\0"))
    for at in [*range(64), *draw.sample(range(64, end), 300), len(content) - 1]:
        changed = bytearray(content)
        changed[at] ^= 1 << draw.randrange(8)
        (tmp_path / name).write_bytes(changed)
        try:
            found = documents_of(tmp_path, name, schema)
        except DataError as error:
            assert name in str(error)
            told += 1
        else:
            assert [a.tolist() for a in found] == [a.tolist() for a in due]
    assert told > 290


@pytest.mark.parametrize("name", DOCUMENT_FORMATS)
def test_damage_is_written_as_the_format_has_it(sets, tmp_path, name):
    """So that what is told is the damage, and not how it was made."""
    file = f"{SHARD}.{DOCUMENT_FORMATS[name].endings[0]}"
    directory = damaged(sets / name, tmp_path, file, "flip", "all")
    due, found = (documents_of(d, file, schema_of(d)) for d in (sets / name, directory))
    assert int((due.values != found.values).sum()) == 1 and isinstance(found, Ragged)
    paths = {f.path for f in manifest_of(directory).files}
    assert paths == {f.path for f in manifest_of(sets / name).files}
    assert format_of(file) == name and np.array_equal(due.offsets[-1], found.offsets[-1])


def test_what_has_another_size_is_not_read(sets, tmp_path, monkeypatch):
    """It may be of any size: a file that grew to gigabytes is hashed, and not looked into."""
    directory = damaged(sets / "npy", tmp_path, f"{SHARD}.ids.bin", "append", "as is")
    monkeypatch.setattr(npy, "decode", read := Reads(npy.decode))
    assert f"{SHARD}.ids.bin has " in problems_of(directory)
    names = {os.path.basename(path) for path in read.paths}
    assert f"{SHARD}.ids.bin" not in names and "train-00001-of-00002.ids.bin" in names


class Reads:
    """Notes what is decoded."""

    def __init__(self, decode):
        self.decode, self.paths = decode, []

    def __call__(self, paths, schema):
        self.paths += paths.values()
        return self.decode(paths, schema)
