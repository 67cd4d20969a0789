"""Datasets of untrusted sources: all sums and the fingerprint are right, and the content is not."""

import json
import os
import re
from pathlib import Path

import pytest

from tests.tools.shard_factory import (
    canonical_sha256,
    replace_file,
    sign,
    write_manifest,
    write_mlm_set,
)
from textmill.pipelines.inspect_shards import main as inspect
from textmill.pipelines.inspection.checks.set_check import verify_dataset
from textmill.pipelines.verify import main as verify
from textmill.schemas.errors import DataError
from textmill.schemas.files.finished import read_dataset
from textmill.schemas.typed_json import load_json, parse_json
from textmill.trainers.reader import ShardSet

SHARD = "train-00000-of-00002.array_record"


@pytest.fixture
def directory(tmp_path) -> Path:
    formats = ("array_record", "tfrecord")
    write_mlm_set(tmp_path / "set", file_formats=formats, encoding="bytes")
    return tmp_path / "set"


def forge(directory: Path, **changes) -> None:
    """Changes fields of schema.json, and makes the fingerprint and all sums right."""
    values = {**json.loads((directory / "schema.json").read_text()), **changes}
    del values["fingerprint"]
    values["fingerprint"] = canonical_sha256(values)
    replace_file(directory, "schema.json", json.dumps(values).encode())
    change_manifest(directory, lambda manifest: manifest.update(fingerprint=values["fingerprint"]))


def change_manifest(directory: Path, change) -> None:
    manifest = json.loads((directory / "MANIFEST.json").read_text())
    change(manifest)
    sign(manifest)
    (directory / "MANIFEST.json").write_text(json.dumps(manifest))


def change_entry(directory: Path, name: str, **fields) -> None:
    """Changes what MANIFEST.json states of a file."""

    def change(manifest):
        [file] = [file for file in manifest["files"] if file["path"] == name]
        file.update(fields)

    change_manifest(directory, change)


def all_refuse(directory: Path, said: str) -> None:
    """ShardSet and verify, in the same words."""
    with pytest.raises(DataError, match=said):
        ShardSet(str(directory))
    try:
        problems = "\n".join(verify_dataset(str(directory)).problems)
    except DataError as error:
        problems = str(error)
    assert re.search(said, problems), problems


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"shards": {"train": 99_999, "validation": 1}}, "differ in the shards"),
        ({"mask_copies": 2}, "x copies 2 != tokens in rows"),
        ({"vocab_size": 51}, "token_counts.npy has 528 bytes, but its ids take 536"),
        ({"code_version": "\ud800"}, "surrogates not allowed"),
        (
            {"parameters": {"prefix_ids": [0], "suffix_ids": 7}},
            "parameters.suffix_ids is 7: a list",
        ),
        ({"parameters": {"prefix_ids": [0], "suffix_ids": []}}, "specials added are those of"),
        ({"parameters": {"x": [[[[[[[[[[]]]]]]]]]]}}, "nested in more than 8"),
        ({"parameters": {"x": 1 << 64}}, "has 18446744073709551616: must be below"),
        ({"seed": 1 << 64}, "seed is 18446744073709551616: a number from 0 to 1"),
    ],
)
def test_a_schema_that_cannot_be_is_refused(directory, changes, said):
    forge(directory, **changes)
    all_refuse(directory, said)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        *(
            ("split", name, f"differ in the shards .'{SHARD}'.*, or in their splits")
            for name in ("trai", "", "TRAIN", "../train", "validation", "\x1b[31m")
        ),
        ("rows", 0, "has 0 rows, but stats.json 20"),
        ("rows", 21, "has 21 rows, but stats.json 20"),
        ("rows", 1 << 31, "rows is 2147483648: for a shard, a number that is not above its bytes"),
    ],
)
def test_a_shard_is_what_the_schema_and_the_statistics_say(directory, field, value, said):
    change_entry(directory, SHARD, **{field: value})
    all_refuse(directory, said)


@pytest.mark.parametrize("name", ["schema.json", "tokenizer.json", "report.html", SHARD])
def test_a_file_of_gigabytes_is_not_read(directory, name):
    os.truncate(directory / name, 10 << 30)
    change_entry(directory, name, bytes=10 << 30)
    said = f"bytes of {name} is {10 << 30}: must be at most 268"
    if name == SHARD:
        said = f"{name} has 10,737,418,240 bytes, but 20 rows take"
    with pytest.raises(DataError, match=said):
        ShardSet(str(directory), verify=False)


@pytest.mark.parametrize(
    "name", ["token_counts.npy", "config.yaml", "report.html", "features.json"]
)
def test_a_file_that_is_taken_from_the_list_is_missed(directory, name):
    def change(manifest):
        manifest["files"] = [file for file in manifest["files"] if file["path"] != name]

    change_manifest(directory, change)
    all_refuse(directory, f"MANIFEST.json does not list {name}, which every such dataset has")


def test_a_file_that_no_set_has_is_refused(directory):
    (directory / "notes.txt").write_text("mine")
    info = read_dataset(str(directory))
    files = [(f.path, f.split, f.rows) for f in info.manifest.files]
    write_manifest(directory, info.schema, [*files, ("notes.txt", None, None)])
    all_refuse(directory, "lists 'notes.txt', which such a dataset does not have")


def test_a_changed_manifest_is_refused_by_its_digest(directory):
    path = directory / "MANIFEST.json"
    manifest = json.loads(path.read_text())
    for digest, said in (("0" * 64, "digest is .*the file was edited"), ("", "digest is empty")):
        path.write_text(json.dumps({**manifest, "digest": digest}))
        with pytest.raises(DataError, match=said):
            read_dataset(str(directory))


def test_files_that_do_not_describe_the_rows(directory):
    """Among them counts whose head gives more memory than there is."""
    features = (directory / "features.json").read_text().replace("uint8", "uint16", 1)
    replace_file(directory, "features.json", features.encode())
    assert verify_dataset(str(directory)).problems == [
        "features.json does not describe the rows of schema.json and stats.json",
    ]
    content = (directory / "token_counts.npy").read_bytes()
    replace_file(directory, "token_counts.npy", content.replace(b"(50,),", b"(1<<60", 1))
    assert "does not hold int64 [50]" in verify_dataset(str(directory)).problems[0]
    with pytest.raises(DataError, match="does not hold int64"):
        inspect([str(directory), "--stats"])


# Links


def test_links_within_the_set_and_to_the_set_are_followed(directory, tmp_path):
    shard = directory / "train-00000-of-00002.tfrecord"
    (directory / "kept").mkdir()
    shard.rename(directory / "kept" / "a")
    shard.symlink_to("kept/a")
    (tmp_path / "link").symlink_to(directory)
    assert ShardSet(str(tmp_path / "link")).rows("train") == 40
    assert verify_dataset(str(tmp_path / "link")).problems == []


@pytest.mark.parametrize(
    "name", ["MANIFEST.json", "tokenizer.json", "train-00000-of-00002.tfrecord"]
)
def test_links_out_of_the_set_are_followed_if_asked(directory, tmp_path, name):
    os.rename(directory / name, tmp_path / "elsewhere")
    (directory / name).symlink_to(tmp_path / "elsewhere")
    for opened in (ShardSet, verify_dataset):
        with pytest.raises(DataError, match=f"{name} is a link out of .*--follow_links"):
            opened(str(directory))
        opened(str(directory), follow_links=True)
    verify([str(directory), "--follow_links"])


# JSON


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'{"a": 1, "b": {"c": 1, "c": 2}}', "the key 'c' occurs twice"),
        (b'{"a": NaN}', "NaN is not a number"),
        (b'{"a": -Infinity}', "-Infinity is not a number"),
        (b'{"a": 1e999}', "1e999 is too large for a number"),
        (b'{"a": "\\ud800"}', "surrogates not allowed"),
        (b'{"\\udc80": 1}', "surrogates not allowed"),
        (b"[" * 100_000, "x.json is not JSON"),
        (b"9" * 5000, "x.json is not JSON"),
        (b"\xff{}", "x.json is not JSON"),
    ],
)
def test_json_that_means_two_things_is_refused(content, said):
    with pytest.raises(DataError, match=said):
        parse_json(content, "x.json")
    assert parse_json(b'["\\ud83d\\ude42", "\\u00e9"]', "x.json") == ["\U0001f642", "\u00e9"]


def test_a_metadata_that_grew_by_a_hole_is_not_read(tmp_path):
    path = tmp_path / "schema.json"
    path.write_bytes(b"{}")
    os.truncate(path, 200 << 20)
    with pytest.raises(DataError, match="schema.json ends in NUL bytes: copy or build the dataset"):
        load_json(str(path))
