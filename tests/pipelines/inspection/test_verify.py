"""Messages of verify about damage made by hand; test_damaged_sets has all kinds of damage."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from xxhash import xxh3_64_hexdigest

from tests.tools.shard_factory import (
    mlm_schema,
    packed_rows,
    replace_file,
    sign,
    tokenizer_json,
    write_mlm_set,
    write_set,
)
from textmill.pipelines.encoding.tokenizer import LoadedTokenizer
from textmill.pipelines.inspection.checks.set_check import verify_dataset
from textmill.pipelines.verify import main
from textmill.schemas.errors import DataError
from textmill.schemas.files.finished import read_dataset
from textmill.schemas.typed_json import to_json

BOTH = ("array_record", "tfrecord")


@pytest.fixture(scope="module")
def whole_set(tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("sets") / "whole"
    write_mlm_set(directory, file_formats=BOTH)
    return directory


@pytest.fixture
def directory(whole_set, tmp_path) -> Path:
    """A copy to damage."""
    return Path(shutil.copytree(whole_set, tmp_path / "set"))


def _problems(directory: Path) -> list[str]:
    return verify_dataset(str(directory)).problems


def _flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 0x10
    path.write_bytes(content)


def test_every_file_is_read_though_one_is_damaged(directory):
    names = ["stats.json", "train-00000-of-00002.tfrecord", "validation-00000-of-00001.tfrecord"]
    for name in names:
        _flip(directory / name, 50)
    problems = _problems(directory)
    assert [p for p in problems if "has sha256" in p] == problems[:3]
    assert [p.split(" ")[0] for p in problems[:3]] == names
    assert [p.rsplit("/", 1)[1] for p in problems[3:]] == [
        f"{names[1]}: record 0 fails its CRC32C: the file was changed or damaged",
        f"{names[2]}: record 0 fails its CRC32C: the file was changed or damaged",
    ]


def test_rows_are_not_read_by_a_schema_that_cannot_be_trusted(directory):
    content = (directory / "schema.json").read_text()
    (directory / "schema.json").write_text(content.replace('"seed": 0', '"seed": 7'))
    report = verify_dataset(str(directory))
    assert [p.split(" ")[0] for p in report.problems] == ["schema.json"]
    assert report.notes == ["no row was read, because schema.json is damaged"]


def test_a_flipped_byte_in_the_manifest_is_found(directory):
    path = directory / "MANIFEST.json"
    content = path.read_bytes()
    for place in range(0, len(content), 97):
        _flip(path, place)
        try:
            assert _problems(directory) != [], place
        except DataError as error:
            assert str(path) in str(error)
        path.write_bytes(content)


def test_swapped_shards_are_told_apart(directory):
    one, two = (directory / f"train-0000{n}-of-00002.tfrecord" for n in (0, 1))
    content = one.read_bytes()
    one.write_bytes(two.read_bytes())
    two.write_bytes(content)
    problems = _problems(directory)
    assert problems[0].endswith(f": it has the content of {two.name}")
    assert problems[1].endswith(f": it has the content of {one.name}")
    # Each shard by itself is in order, so the other format is what shows it.
    assert problems[2:] == [
        f"{one.name}: row 0 differs from {one.stem}.array_record",
        f"{two.name}: row 0 differs from {two.stem}.array_record",
    ]


# Damage under a right checksum.


def test_wrong_counts_are_found_in_the_rows(directory):
    info, name = read_dataset(str(directory)), "train-00001-of-00002"

    def write(**changes):
        stats = replace(info.stats, **changes).to_dict(info.schema.row_tokens)
        replace_file(directory, "stats.json", to_json(stats))

    right = info.stats.shards[name]
    wrong = replace(right, segments=right.segments + 1, masked=right.masked - 1)
    write(shards={**info.stats.shards, name: wrong})
    contradiction, *others = _problems(directory)
    assert contradiction.startswith(f"stats.json: {name}: the counts violate the rule")
    assert others == [
        f"{name}: segments is {wrong.segments} in stats.json, but {right.segments} in the rows",
        f"{name}: masked is {wrong.masked} in stats.json, but {right.masked} in the rows",
    ]
    write(documents_read=1)
    (problem,) = _problems(directory)
    assert problem.startswith("stats.json: documents read 1 != kept ")


def test_wrong_hashes_of_pieces_are_found(directory):
    path, name = directory / "MANIFEST.json", "train-00001-of-00002.tfrecord"
    manifest = json.loads(path.read_text())
    (file,) = (file for file in manifest["files"] if file["path"] == name)
    actual = xxh3_64_hexdigest((directory / name).read_bytes())
    assert file["pieces"] == [actual]
    file["pieces"] = ["0" * 16]
    sign(manifest)
    path.write_text(json.dumps(manifest))
    assert _problems(directory) == [
        f"{name}: piece 0 of 1 has XXH3-64 {actual}, not the manifest's {'0' * 16}"
    ]


def test_another_tokenizer_and_golden_ids_that_it_does_not_give_are_found(tmp_path):
    golden = LoadedTokenizer(tokenizer_json(50)).golden
    (text, ids), *others = golden
    changed = {
        "other ids": ((text, (49,)), *others),
        "another text": ((text + "x y", ids), *others),
        "no text": (("", ids), *others),
        "one less": golden[:-1],
        "one more": (*golden, ("w5", (5,))),
        "another order": golden[::-1],
        "none": (),
    }
    for name, stated in {"as published": golden, **changed}.items():
        write_mlm_set(tmp_path / name, golden=stated)
        problems = _problems(tmp_path / name)
        assert len(problems) == (name in changed), name
        assert all("gives the golden text and ids" in problem for problem in problems)
    replace_file(tmp_path / "as published", "tokenizer.json", tokenizer_json(51))
    (problem,) = _problems(tmp_path / "as published")
    assert "tokenizer.json is not the tokenizer of schema.json" in problem


def test_problems_of_a_set_in_a_bucket_name_its_url(gs_store, tmp_path):
    golden = (("another text", (5,)),)
    write_mlm_set(tmp_path / "set", golden=golden)
    url = gs_store.upload(tmp_path / "set", "sets/one")
    assert verify_dataset(url).problems[0].startswith(f"{url}/tokenizer.json gives the golden text")


def test_masked_copies_of_a_row_are_counted(tmp_path):
    schema = mlm_schema(mask_copies=2, file_formats=("tfrecord",))
    columns = {}
    for split, rows in (("train", 40), ("validation", 6)):
        once = packed_rows(schema, rows, seed=5)
        copies = 2 if split == "train" else 1
        columns[split] = {n: np.repeat(values, copies, axis=0) for n, values in once.items()}
    directory = tmp_path / "set"
    write_set(directory, schema, columns)
    assert _problems(directory) == []
    columns["train"]["masked_ids"][10, 0] += 1
    shutil.rmtree(directory)
    write_set(directory, schema, columns)
    problem = _problems(directory)[-1]
    assert problem == (
        "train-00000-of-00002: row 10, unmasked, occurs 1 times, but its split has 2 masked copies"
    )


# The command


def test_command_says_one_line_or_what_is_wrong(directory, whole_set, capsys):
    main([str(whole_set), str(directory)])
    printed = capsys.readouterr().out
    assert printed.startswith("ok: 2 datasets, 100 rows, 1,500 tokens, ")
    assert printed.count("\n") == 1
    done = []
    report = verify_dataset(str(whole_set), done.append)
    assert (report.problems, report.notes, report.rows, report.tokens) == ([], [], 50, 750)
    assert sum(done) > 0
    (directory / "notes.txt").write_text("mine")
    (directory / "cache").mkdir()
    (directory / "cache" / "a.bin").write_bytes(b"")
    (directory / ".lock").write_bytes(b"")
    main([str(directory)])
    assert capsys.readouterr().err == (
        f"note: {directory}: cache/a.bin is not listed in MANIFEST.json\n"
        f"note: {directory}: notes.txt is not listed in MANIFEST.json\n"
    )
    _flip(directory / "stats.json", 5)
    with pytest.raises(DataError) as failure:
        main([str(whole_set), str(directory)])
    first, second = str(failure.value).splitlines()
    assert first == f"{directory} differs from what was published, 1 problem:"
    assert second.startswith("  stats.json has sha256 ")
    assert capsys.readouterr().out == ""


def test_command_shows_twenty_problems_and_counts_the_rest(tmp_path):
    """Rows are broken in any block of a shard; test_row_checks has every kind of broken row."""
    schema = mlm_schema(file_formats=("tfrecord",), shards={"train": 2, "validation": 1})
    columns = {"train": packed_rows(schema, 5000, 1), "validation": packed_rows(schema, 5, 2)}
    columns["train"]["input_ids"][4900:4920, 0] = 9
    columns["validation"]["input_ids"][:3, 0] = 9
    write_set(tmp_path / "set", schema, columns)
    with pytest.raises(DataError) as failure:
        main([str(tmp_path / "set")])
    lines = str(failure.value).splitlines()
    assert lines[0].endswith(", 23 problems:")
    assert len(lines) == 22
    broken = "has id 9 at 0, not 0 in the unmasked row"
    assert lines[20].startswith("  train-00001-of-00002.tfrecord: row 2419: ")
    assert lines[20].endswith(broken) and lines[21] == "  and 3 more"
