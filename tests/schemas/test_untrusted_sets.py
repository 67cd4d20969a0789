"""Sets of strangers: every sum and the fingerprint are right, and what they say cannot be."""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from pipelines.inspect_shards import main as inspect
from pipelines.inspection.checks.set_check import verify_set
from schemas.errors import DataError
from schemas.metadata import read_set
from schemas.typed_json import load_json, parse_json, to_json
from tests.stress import mutate_sets
from tests.tools.places import ROOT
from tests.tools.shard_factory import replace_file, sign, write_manifest, write_mlm_set
from trainers.reader import ShardSet


@pytest.fixture
def directory(tmp_path) -> Path:
    write_mlm_set(tmp_path / "set", file_formats=("array_record", "tfrecord"))
    return tmp_path / "set"


def forge(directory: Path, **changes) -> None:
    """Changes fields of schema.json, and makes the fingerprint and all sums right."""
    values = json.loads((directory / "schema.json").read_text())
    values.update(changes)
    values = mutate_sets._forge_schema(values)
    replace_file(directory, "schema.json", json.dumps(values).encode())
    change_manifest(directory, lambda manifest: manifest.update(fingerprint=values["fingerprint"]))


def change_manifest(directory: Path, change) -> None:
    manifest = json.loads((directory / "MANIFEST.json").read_text())
    change(manifest)
    sign(manifest)
    (directory / "MANIFEST.json").write_text(json.dumps(manifest))


def all_refuse(directory: Path, said: str) -> None:
    """ShardSet and verify, in the same words."""
    with pytest.raises(DataError, match=said):
        ShardSet(str(directory))
    try:
        problems = "\n".join(verify_set(str(directory)).problems)
    except DataError as error:
        problems = str(error)
    assert re.search(said, problems), problems


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"shards": {"train": 1 << 31, "validation": 1}}, "up to 99999"),
        ({"shards": {"train": 99_999, "validation": 1}}, "differ in the shards"),
        ({"splits": {}}, "names of letters"),
        ({"splits": {}, "shards": {}}, "names of letters"),
        ({"mask_copies": 1 << 63}, "mask_copies is 9223372036854775808: a number from 1 to 65536"),
        ({"mask_copies": 2}, "x copies 2 != tokens in rows"),
        ({"special_ids": {"bos": 0, "pad": 1, "eos": 2}}, "static masking needs a mask token"),
        ({"vocab_size": 51}, "token_counts.npy has 528 bytes, but its ids take 536"),
        ({"vocab_size": 1 << 30}, "vocab_size is 1073741824: a number from 1 to 16777216"),
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


@pytest.mark.parametrize("value", ["trai", "", "TRAIN", "../train", "validation", "\x1b[31m"])
def test_a_shard_stays_in_its_split(directory, value):
    shard = "train-00001-of-00002.array_record"

    def change(manifest):
        [file] = [file for file in manifest["files"] if file["path"] == shard]
        file["split"] = value

    change_manifest(directory, change)
    all_refuse(directory, f"differ in the shards .'{shard}'.*, or in their splits")


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (0, "has 0 rows, but stats.json 20"),
        (21, "has 21 rows, but stats.json 20"),
        (1 << 31, "rows is 2147483648: for a shard, a number that is not above its bytes"),
    ],
)
def test_rows_are_those_of_the_statistics(directory, rows, said):
    change_manifest(directory, lambda m: m["files"][-4].update(rows=rows))
    all_refuse(directory, said)


def test_rows_beyond_memory_are_refused_in_all_places_at_once(directory):
    """Manifest and statistics agree on 2**31 rows, and the file is as large as it says: sparse."""
    info = read_set(str(directory))
    path = "train-00000-of-00002.array_record"
    shards = dict(info.stats.shards)
    shards[path.split(".")[0]] = replace(shards[path.split(".")[0]], rows=1 << 31)
    stats = replace(info.stats, shards=shards).to_dict(info.schema.row_tokens)
    replace_file(directory, "stats.json", to_json(stats))
    os.truncate(directory / path, 3 << 30)

    def change(manifest):
        for file in manifest["files"]:
            if file["path"].startswith("train-00000"):
                file.update(
                    rows=1 << 31, bytes=(3 << 30) if file["path"] == path else file["bytes"]
                )

    with pytest.raises(DataError, match="not above its bytes"):
        change_manifest(directory, change)
        read_set(str(directory))


@pytest.mark.parametrize("name", ["schema.json", "tokenizer.json", "report.html"])
@pytest.mark.parametrize("size", [3 << 30, 10 << 30])
def test_a_metadata_of_gigabytes_is_not_read(directory, name, size):
    os.truncate(directory / name, size)

    def change(manifest):
        [file] = [file for file in manifest["files"] if file["path"] == name]
        file["bytes"] = size

    change_manifest(directory, change)
    with pytest.raises(DataError, match=f"bytes of {name} is {size}: must be at most 268"):
        ShardSet(str(directory), verify=False)


def test_a_shard_takes_about_the_bytes_that_its_rows_need(directory):
    name = "train-00000-of-00002.array_record"
    os.truncate(directory / name, 10 << 30)

    def change(manifest):
        [file] = [file for file in manifest["files"] if file["path"] == name]
        file["bytes"] = 10 << 30

    change_manifest(directory, change)
    with pytest.raises(DataError, match=f"{name} has 10,737,418,240 bytes, but 20 rows take"):
        ShardSet(str(directory))


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
    info = read_set(str(directory))
    files = [(f.path, f.split, f.rows) for f in info.manifest.files]
    write_manifest(directory, info.schema, [*files, ("notes.txt", None, None)])
    all_refuse(directory, "lists 'notes.txt', which such a dataset does not have")


def test_a_changed_manifest_is_refused_by_its_digest(directory):
    path = directory / "MANIFEST.json"
    path.write_text(path.read_text().replace('"split": "train"', '"split": "trai"', 1))
    with pytest.raises(DataError, match="digest is .*the file was edited"):
        read_set(str(directory))
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps({**manifest, "digest": ""}))
    with pytest.raises(DataError, match="digest is empty"):
        read_set(str(directory))


def test_counts_with_a_head_that_asks_for_all_memory(directory, capsys):
    content = (directory / "token_counts.npy").read_bytes()
    replace_file(directory, "token_counts.npy", content.replace(b"(50,),", b"(1<<60", 1))
    assert "does not hold int64 [50]" in verify_set(str(directory)).problems[0]
    with pytest.raises(DataError, match="does not hold int64"):
        inspect([str(directory), "--stats"])


def test_files_of_tensorflow_datasets_describe_the_rows(directory):
    features = (directory / "features.json").read_text().replace("uint8", "uint16", 1)
    replace_file(directory, "features.json", features.encode())
    assert verify_set(str(directory)).problems == [
        "features.json does not describe the rows of schema.json and stats.json",
    ]


# Links


def test_links_within_the_set_and_to_the_set_are_followed(directory, tmp_path):
    shard = directory / "train-00000-of-00002.tfrecord"
    (directory / "kept").mkdir()
    shard.rename(directory / "kept" / "a")
    shard.symlink_to("kept/a")
    (tmp_path / "link").symlink_to(directory)
    assert ShardSet(str(tmp_path / "link")).rows("train") == 40
    assert verify_set(str(tmp_path / "link")).problems == []


@pytest.mark.parametrize(
    "name", ["MANIFEST.json", "tokenizer.json", "train-00000-of-00002.tfrecord"]
)
def test_links_out_of_the_set_are_followed_if_asked(directory, tmp_path, name):
    os.rename(directory / name, tmp_path / "elsewhere")
    (directory / name).symlink_to(tmp_path / "elsewhere")
    for opened in (ShardSet, verify_set):
        with pytest.raises(DataError, match=f"{name} is a link out of .*--follow_links"):
            opened(str(directory))
        opened(str(directory), follow_links=True)
    command = [sys.executable, "-m", "pipelines.verify", str(directory), "--follow_links"]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == 0


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
    ],
)
def test_json_that_means_two_things_is_refused(content, said):
    with pytest.raises(DataError, match=said):
        parse_json(content, "x.json")


def test_json_with_escapes_of_whole_characters_is_read():
    assert parse_json(b'["\\ud83d\\ude42", "\\u00e9"]', "x.json") == ["\U0001f642", "\u00e9"]


# Many mutations


@pytest.mark.slow
def test_no_mutation_of_a_metadata_is_taken_for_the_set(tmp_path):
    """A sample; `python -m tests.stress.mutate_sets` makes 10,000 of each task."""
    with tempfile.TemporaryDirectory(dir=tmp_path) as folder:
        write_mlm_set(Path(folder, "set"), train=6, validation=2)
        code = (  # in a process of its own: it forks, which one with threads should not
            "import json; from pathlib import Path; from tests.stress.mutate_sets import mutate\n"
            f"counts = mutate(Path({folder!r}, 'set'), 'mlm', 20, 1, lambda _: None)\n"
            "print(json.dumps(list(counts.values())))"
        )
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert not run.returncode, run.stderr
    total = sum(map(Counter, json.loads(run.stdout)), Counter())
    assert sum(total.values()) == 20 and total["refused"] > 10
    assert not any(total[word] for word in mutate_sets.BAD), total


def test_a_metadata_that_grew_by_a_hole_is_not_read(tmp_path):
    path = tmp_path / "schema.json"
    path.write_bytes(b"{}")
    os.truncate(path, 200 << 20)
    with pytest.raises(DataError, match="schema.json ends in NUL bytes: copy or build the dataset"):
        load_json(str(path))
