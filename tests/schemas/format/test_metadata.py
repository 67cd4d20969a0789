"""Metadata files are read as written, wrong ones are refused by name, and JSON Schemas agree."""

import dataclasses
import hashlib
import json
import re
import shutil
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tools.clm_factory import clm_schema
from tests.tools.places import ROOT
from tests.tools.shard_factory import (
    mlm_schema,
    replace_file,
    write_mlm_set,
)
from textmill.schemas.errors import DataError
from textmill.schemas.files.finished import read_dataset
from textmill.schemas.format import codec, features, metadata, records, statistics
from textmill.schemas.format.drops import BY_SHARD
from textmill.schemas.format.manifest import FORMAT_VERSION, Manifest, ManifestFile
from textmill.schemas.format.metadata import InputFile, Inputs, Schema
from textmill.schemas.format.records import DOCUMENT_FORMATS
from textmill.schemas.format.statistics import ShardStatistics, Statistics, by_length
from textmill.schemas.typed_json import to_json

SHA = "0123456789abcdef" * 4
FILES = ("schema.json", "stats.json", "inputs.json", "MANIFEST.json")


def _json_schema(name: str) -> dict:
    path = ROOT / "schemas" / f"{Path(name).stem}.schema.json"
    schema = json.loads(path.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    return schema


def _validator(name: str) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(_json_schema(name))


@pytest.fixture(scope="module")
def real_set(tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("sets") / "real"
    changes = {
        "golden": (("Grüße 🙂", (5, 6)), ("", ())),
        "parameters": {"document": "line", "text_field": None, "stages": ["a", 1, 0.5]},
    }
    write_mlm_set(directory, file_formats=("array_record", "tfrecord"), **changes)
    inputs = Inputs((InputFile("texts/a.txt.zst", 12, "ab" * 16),))
    replace_file(directory, "inputs.json", to_json(inputs))
    return directory


# Schema


def test_fingerprint_is_the_sha256_of_all_other_fields():
    values = json.loads(to_json(mlm_schema()))
    assert values.keys() == _fields(Schema)
    fingerprint = values.pop("fingerprint")
    text = json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert hashlib.sha256(text.encode()).hexdigest() == fingerprint


def test_of_several_formats_the_first_by_name_is_read():
    both = mlm_schema(file_formats=("array_record", "tfrecord"))
    assert [both.read_ending, mlm_schema().read_ending] == ["array_record", "tfrecord"]


def test_a_row_may_be_masked_whole():
    assert mlm_schema(mask_rate=0.99, max_masked=16).max_masked == mlm_schema().max_length
    with pytest.raises(DataError, match="mask_rate is 0.15: must be 0 in rows that are not masked"):
        dataclasses.replace(clm_schema(), mask_rate=0.15, fingerprint="")


def test_differences_name_each_field_and_both_values():
    one = mlm_schema(parameters={"fields": ("text",)})
    two = dataclasses.replace(one, fingerprint="", seed=7, packing="none")
    assert two.differences(one) == [
        'packing: stored "none", requested "best_fit"',
        "seed: stored 7, requested 0",
    ]
    three = dataclasses.replace(
        one, fingerprint="", parameters={"fields": ("text",), "document": "file"}
    )
    assert three.differences(one) == ['document: stored "file", requested nothing']
    longer = dataclasses.replace(one, fingerprint="", parameters={"fields": ("text" * 30,)})
    assert longer.differences(one) == ["fields: a different value"]
    settings = {"task": "mlm", "golden": [1], "mask_rate": 0.15, "seed": 0, "features": [], "x": 1}
    other = {"task": "clm", "golden": [2], "mask_rate": 0, "seed": 7, "features": [1], "y": 1}
    assert metadata.setting_differences(settings, other) == [
        'task: stored "mlm", requested "clm"',
        "mask_rate: stored 0.15, requested 0",
        "seed: stored 0, requested 7",
        "x: stored 1, requested nothing",
        "and 3 more settings",
    ]
    # A tuple comes back from JSON as a list, which is not a difference.
    assert one.differences(Schema.from_dict(json.loads(to_json(one)), "schema.json")) == []


# Reading


@pytest.mark.parametrize("values", [None, [], "schema", 3])
def test_what_is_no_object_is_refused(values):
    for read in (Schema.from_dict, Inputs.from_dict, Manifest.from_dict):
        with pytest.raises(DataError, match="x.json is .*, not of type dict"):
            read(values, "x.json")
    with pytest.raises(DataError, match="x.json: row_tokens is None, not from 0 to 131071"):
        Statistics.from_dict(values, "x.json")


def test_a_manifest_lists_each_file_once_in_order():
    first, second = (ManifestFile(f"{name}.json", 3, SHA) for name in "ab")
    for files in ((first, first), (second, first)):
        with pytest.raises(DataError, match="files is .*: must be sorted by path, each once"):
            Manifest(FORMAT_VERSION, SHA, files)


def test_a_set_is_read_as_it_was_written(real_set):
    info = read_dataset(str(real_set))
    assert info.schema == mlm_schema(
        file_formats=("array_record", "tfrecord"),
        golden=(("Grüße 🙂", (5, 6)), ("", ())),
        parameters={"document": "line", "text_field": None, "stages": ["a", 1, 0.5]},
    )
    assert info.inputs.files == (InputFile("texts/a.txt.zst", 12, "ab" * 16),)
    assert info.stats.broken_equations() == []
    assert info.manifest.rows("train", "tfrecord") == info.stats.split("train").rows == 40
    assert [f.path for f in info.manifest.shards("train", "array_record")] == [
        "train-00000-of-00002.array_record",
        "train-00001-of-00002.array_record",
    ]
    for name, values in (
        ("schema.json", info.schema),
        ("stats.json", info.stats.to_dict(info.schema.row_tokens)),
        ("inputs.json", info.inputs),
    ):
        assert (real_set / name).read_bytes() == to_json(values)
    for name in FILES:
        _validator(name).validate(json.loads((real_set / name).read_text()))


def test_a_set_with_a_cut_shard_or_the_schema_of_another_is_refused(real_set, tmp_path):
    copied = Path(shutil.copytree(real_set, tmp_path / "set"))
    shard = next(copied.glob("train-00000-*"))
    content = shard.read_bytes()
    shard.write_bytes(content[:-1])
    with pytest.raises(DataError, match=f"{shard.name} has {len(content) - 1:,} bytes"):
        read_dataset(str(copied))
    shard.write_bytes(content)
    other = mlm_schema(seed=9, file_formats=("array_record", "tfrecord"))
    replace_file(copied, "schema.json", to_json(other))
    with pytest.raises(DataError, match=r"fingerprint is '.*', not schema\.json's"):
        read_dataset(str(copied))


# Statistics


def _shard(**counts) -> ShardStatistics:
    return ShardStatistics(**counts)


def test_statistics_add_up():
    one = Statistics(5, {"not UTF-8": 1}, 100, {"a_b-00000-of-00002": _shard(rows=3)})
    two = Statistics(7, {"not UTF-8": 2}, 50, {"a_b-00001-of-00002": _shard(rows=4)})
    three = Statistics(shards={"a-00000-of-00001": _shard(rows=9)})
    total = Statistics.sum([one, two, three])
    assert (total.documents_read, total.source_bytes) == (12, 150)
    assert total.dropped == {"not UTF-8": 3}
    assert {name: split.rows for name, split in total.splits().items()} == {"a": 9, "a_b": 7}
    assert (total.split("a_b").rows, total.split("c").rows, total.total().rows) == (7, 0, 16)
    with pytest.raises(DataError, match="report twice"):
        Statistics.sum([total, three])


def test_broken_equations_are_told_in_numbers():
    good = _shard(
        documents=2,
        dropped={"duplicates": 3},
        tokens=29,
        specials_added=4,
        tokens_truncated=1,
        rows=4,
        tokens_in_rows=64,
        **by_length(np.array([9, 20])),
    )
    stats = Statistics(7, {"empty": 2}, shards={"t-00000-of-00001": good})
    assert stats.broken_equations({"t": 2}.__getitem__) == []
    trained = Statistics(7, {"empty": 2}, shards={"train_2-00000-of-00001": good})
    assert trained.broken_equations(mlm_schema(mask_copies=2).copies_of) == []
    assert [line[:5] for line in stats.broken_equations(mlm_schema(mask_copies=2).copies_of)] == [
        "t-000"
    ]
    assert stats.broken_equations() == [
        "t-00000-of-00001: (tokens 29 + repeated 0 + specials 4 - truncated 1) x copies 1 "
        "!= tokens in rows 64"
    ]
    assert dataclasses.replace(stats, documents_read=8).broken_equations(lambda split: 2) == [
        "documents read 8 != kept 2 + dropped 5 (duplicates: 3 dropped; rejected: 2 empty)"
    ]
    short = dataclasses.replace(good, documents=1, dropped={"duplicates": 4})
    assert Statistics(7, {"empty": 2}, shards={"t": short}).broken_equations(lambda split: 2) == [
        "t: documents in length_histogram 2 != documents 1"
    ]
    other = dataclasses.replace(good, length_tokens=by_length(np.array([9, 21]))["length_tokens"])
    assert Statistics(7, {"empty": 2}, shards={"t": other}).broken_equations(lambda split: 2) == [
        "t: tokens in length_tokens 30 != tokens 29"
    ]


@given(st.lists(st.integers(0, (1 << 32) - 1), max_size=20))
def test_documents_and_tokens_are_counted_by_bit_lengths(lengths):
    bins = by_length(np.array(lengths, np.int64))
    assert [len(counts) for counts in bins.values()] == [statistics.HISTOGRAM_BINS] * 2
    for bits, (documents, tokens) in enumerate(zip(*bins.values(), strict=True)):
        inside = [length for length in lengths if length.bit_length() == bits]
        assert (documents, tokens) == (len(inside), sum(inside))


def test_stats_json_tells_sums_and_densities():
    stats = Statistics(
        shards={
            "train-00000-of-00002": _shard(rows=2, tokens_in_rows=30),
            "train-00001-of-00002": _shard(rows=1, tokens_in_rows=16),
            "test-00000-of-00001": _shard(rows=1, tokens_in_rows=4),
        }
    )
    values = json.loads(to_json(stats.to_dict(16)))
    assert values["row_tokens"] == 16
    assert values["splits"]["train"]["rows"] == 3
    assert values["splits"]["train"]["packing_efficiency"] == 0.958333
    assert values["total"]["packing_efficiency"] == 0.78125
    assert Statistics.from_dict(values, "stats.json") == stats


# JSON


def test_json_is_sorted_and_short_lists_stand_on_one_line():
    values = {"b": [1, 2], "a": {"d": [], "c": {}}, "e": [["ä", (1,)]], "f": None}
    text = to_json(values).decode()
    assert text == (
        '{\n  "a": {\n    "c": {},\n    "d": []\n  },\n  "b": [1, 2],\n'
        '  "e": [\n    [\n      "ä",\n      [1]\n    ]\n  ],\n  "f": null\n}\n'
    )


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)


@given(_JSON)
def test_json_is_read_as_it_was_written(values):
    assert json.loads(to_json(values)) == values


# JSON Schemas


def _break(values: dict, path: str, value) -> dict:
    """A copy with one value replaced; `path` is "features.0.dtype"."""
    values = json.loads(json.dumps(values))
    *parents, last = path.split(".")
    place = values
    for key in parents:
        place = place[int(key) if isinstance(place, list) else key]
    place[last] = value
    return values


SHARD = "shards.train-00000-of-00002"
# File, place in it, value, and what the message contains.
WRONG = [
    ("schema.json", "format_version", 3, "format_version is 3: this Textmill reads version 4"),
    ("schema.json", "format_version", 5, "version 4; build the dataset again, or install"),
    ("schema.json", "max_length", 0, "max_length is 0: a number from 1 to 65535"),
    ("schema.json", "max_length", 65_536, "max_length is 65536: a number from 1 to 65535"),
    ("schema.json", "max_length", "16", "max_length is '16', not of type int"),
    ("schema.json", "vocab_size", (1 << 24) + 1, "vocab_size is 16777217: .* 1 to 16777216"),
    ("schema.json", "special_ids", {"cls": 0}, "special_ids is .*: roles are bos, eos, pad, mask"),
    ("schema.json", "tokenizer_sha256", "abc", "tokenizer_sha256 is 'abc': 64 hex digits"),
    ("schema.json", "golden", [["a", [1], 2]], r"golden\[0\] has 3 items, not 2"),
    ("schema.json", "packing", "first_fit", "packing is .*: one of best_fit, concat, none"),
    ("schema.json", "mask_rate", 1.0, "mask_rate is 1.0: a share from 0 to below 1"),
    ("schema.json", "mask_unit", "phrase", "mask_unit is 'phrase': one of token, word, span"),
    ("schema.json", "mask_copies", 0, "mask_copies is 0: a number from 1 to 65536"),
    ("schema.json", "mask_copies", 1 << 63, "mask_copies is 9223.*: a number from 1 to 65536"),
    ("schema.json", "seed", -1, "seed is -1: a number from 0 to 18446744073709551615"),
    ("schema.json", "seed", True, "seed is True, not of type int"),
    ("schema.json", "splits", [], r"splits is \[\], not of type dict"),
    ("schema.json", "splits", {}, "splits is {}: names of letters"),
    ("schema.json", "splits", {"train": 1.0, "validation": 0.0}, "splits is .*: .* shares above 0"),
    ("schema.json", "splits", {"my train": 0.5, "b": 0.5}, "splits is .*: names of letters, dig"),
    ("schema.json", "shards", {"train": 1 << 31, "validation": 1}, "shards is .*, up to 99999"),
    ("schema.json", "shards", {"train": 2, "validation": 0}, "shards is .*: a positive number for"),
    ("schema.json", "shards.train", 2.5, r"shards\.train is 2\.5, not of type int"),
    ("schema.json", "encoding", "zlib", "encoding is 'zlib': one of bits, bytes, int64_list"),
    ("schema.json", "file_formats", ["tfrecord", "tfrecord"], "file_formats is .*: some of array"),
    ("schema.json", "file_formats", [], "file_formats is .*: some of array_record, tfrecord"),
    ("schema.json", "features.0.dtype", "float32", "features is .*: those of the task are input"),
    ("schema.json", "features.1.dtype", 5, r"features\[1\]\.dtype is 5, not of type str"),
    ("schema.json", "features", [{}], r"features\[0\]: missing fields \['dtype', .*\], unknown"),
    ("schema.json", "speed", 3, r"unknown fields \['speed'\].*build the dataset again"),
    ("schema.json", "fingerprint", "abc", "fingerprint is 'abc': .*the file was edited"),
    ("stats.json", "total.rows", -1, "total does not follow from the counts"),
    ("stats.json", "total.packing_efficiency", 1.5, "total does not follow from the counts"),
    ("stats.json", "total.more", 1, "total does not follow from the counts of the shards"),
    ("stats.json", "splits.train.length_histogram", [0], "splits does not follow from the coun"),
    ("stats.json", f"{SHARD}.length_histogram", [0, 1], f"{SHARD}: .* has 2 bins, not 33"),
    ("stats.json", f"{SHARD}.tokens", -1, f"{SHARD}: tokens is -1: a count is at least 0"),
    ("stats.json", f"{SHARD}.packing_efficiency", 0.5, r"unknown fields \['packing_effic"),
    ("stats.json", "shards.train", {}, "shards.train: 'duplicates' is missing"),
    ("stats.json", "documents_rejected", {"empty": -1}, "empty is -1: a count is at least 0"),
    ("stats.json", "dropped", {}, "the field 'dropped' is unknown: build the dataset again"),
    ("stats.json", "funnel", {}, r"unknown fields \['funnel'\]"),
    ("stats.json", f"{SHARD}.dropped", {}, f"{SHARD}: the field 'dropped' is unknown"),
    ("stats.json", f"{SHARD}.held_out", -1, "held_out is -1: a count is at least 0"),
    ("stats.json", f"{SHARD}.duplicates", None, "duplicates is None, not of type int"),
    ("inputs.json", "files.0.bytes", None, r"files\[0\]\.bytes is None, not of type int"),
    ("inputs.json", "files.0.bytes", -1, r"files\[0\]: bytes is -1: must be at least 0"),
    ("inputs.json", "files.0.digest", "xyz", r"files\[0\]: digest is 'xyz': hex digits"),
    ("MANIFEST.json", "files.0.path", "/a", "path is '/a': a relative path inside the dataset"),
    ("MANIFEST.json", "files.0.path", "../other/a.json", "path is .*: a relative path inside"),
    ("MANIFEST.json", "files.0.path", "a/../../b", "path is .*: a relative path inside the dat"),
    ("MANIFEST.json", "files.0.path", "", "path is '': a relative path inside the dataset"),
    ("MANIFEST.json", "files.0.bytes", -1, "bytes is -1: a number from 0"),
    ("MANIFEST.json", "files.0.sha256", "ABC", "sha256 is 'ABC': 64 hex digits"),
    ("MANIFEST.json", "files.0.rows", 3, "rows is 3: for a shard, .* null for other files"),
    ("MANIFEST.json", "files.0.split", "train", "rows is None: for a shard, a number"),
    ("MANIFEST.json", "more", 3, r"unknown fields \['more'\]"),
    ("MANIFEST.json", "format_version", 9, "format_version is 9: this Textmill reads version 3"),
]
# The same; a JSON Schema cannot express these.
WRONG_TOGETHER = [
    ("schema.json", "task", "translation", "task is 'translation': one of c.*, mlm"),
    ("schema.json", "special_ids", {"bos": 0, "pad": 1}, "static masking needs a mask token"),
    ("schema.json", "all_special_ids", [0, 2], "all_special_ids is .* include those of special"),
    ("schema.json", "all_special_ids", [4, 3, 2, 1, 0], "ascending ids below vocab_size"),
    ("schema.json", "golden", [["a", [50]]], "golden is .*: ids below vocab_size"),
    ("schema.json", "mask_rate", 0.3, "max_masked is 2: must be mask_rate x max_length, rounded"),
    ("schema.json", "max_masked", 17, "max_masked is 17: must be mask_rate x max_length, rounde"),
    ("schema.json", "splits", {"train": 0.5, "validation": 0.4}, "splits is .* add up to 1"),
    ("schema.json", "shards", {"train": 2}, "shards is .*: a positive number for every split"),
    ("schema.json", "file_formats", ["parquet"], "file_formats is .*: some of array_record, tfr"),
    ("schema.json", "features.0.shape", [17], "features is .*: .*input_ids uint16.16."),
    ("schema.json", "seed", 1, "fingerprint is .*the file was edited"),
    ("stats.json", "total.rows", 5, "total does not follow from the counts"),
    ("stats.json", "splits", {}, "splits does not follow from the counts"),
    ("stats.json", "row_tokens", 17, "(total|splits) does not follow from"),  # other densities
]


@pytest.mark.parametrize(("name", "path", "value", "message"), [*WRONG, *WRONG_TOGETHER])
def test_a_wrong_value_is_refused_by_the_json_schema_and_by_the_code(
    real_set, name, path, value, message
):
    """The code gives the file, the place, the value and the remedy."""
    broken = _break(json.loads((real_set / name).read_text()), path, value)
    classes = {"schema.json": Schema, "stats.json": Statistics, "inputs.json": Inputs}
    with pytest.raises(DataError, match=rf"(?s)^{name}: .*{message}"):
        classes.get(name, Manifest).from_dict(broken, name)
    is_seen = (name, path, value, message) in WRONG
    assert _validator(name).is_valid(broken) != is_seen


def _fields(cls: type) -> set[str]:
    return {field.name for field in dataclasses.fields(cls)}


def test_json_schemas_list_the_fields_of_the_dataclasses():
    schema, stats = _json_schema("schema.json"), _json_schema("stats.json")
    inputs, manifest = _json_schema("inputs.json"), _json_schema("MANIFEST.json")
    derived = {"row_tokens", "splits", "total"}
    for listed, expected in (
        (schema, _fields(Schema)),
        (schema["properties"]["features"]["items"], _fields(features.Feature)),
        (stats, _fields(Statistics) - {"dropped"} | {"documents_rejected"} | derived),
        (
            stats["$defs"]["counts"],
            _fields(ShardStatistics) - {"dropped"} | {drop.name for drop in BY_SHARD},
        ),
        (stats["$defs"]["counts_with_efficiency"], {"packing_efficiency"}),
        (inputs, _fields(Inputs)),
        (inputs["properties"]["files"]["items"], _fields(InputFile)),
        (manifest, _fields(Manifest)),
        (manifest["properties"]["files"]["items"], _fields(ManifestFile)),
    ):
        assert set(listed["properties"]) == expected
        assert sorted(expected - {"pieces", "trained"}) == listed["required"]


def test_json_schemas_know_the_same_values_as_the_code():
    properties = _json_schema("schema.json")["properties"]
    histogram = _json_schema("stats.json")["$defs"]["counts"]["properties"]["length_histogram"]
    assert properties["format_version"]["const"] == metadata.FORMAT_VERSION
    kinds = properties["features"]["items"]["properties"]["kind"]["enum"]
    assert tuple(kinds) == features.KINDS
    assert all(re.search(properties["task"]["pattern"], task) for task in features.TASKS)
    assert tuple(properties["packing"]["enum"]) == metadata.PACKINGS
    assert tuple(properties["mask_unit"]["enum"]) == metadata.MASK_UNITS
    assert tuple(properties["special_ids"]["propertyNames"]["enum"]) == metadata.ROLES
    assert tuple(properties["encoding"]["enum"]) == codec.ENCODINGS
    format_name = properties["file_formats"]["items"]["pattern"]
    assert all(re.search(format_name, name) for name in (*records.FORMATS, *DOCUMENT_FORMATS))
    assert properties["max_length"]["maximum"] == features.MAX_TOKENS - 1
    assert histogram["minItems"] == histogram["maxItems"] == statistics.HISTOGRAM_BINS
