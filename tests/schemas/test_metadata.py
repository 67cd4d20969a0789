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

from schemas import codec, features, metadata, records, statistics
from schemas.drops import BY_SHARD
from schemas.errors import DataError
from schemas.manifest import FORMAT_VERSION, Manifest, ManifestFile
from schemas.metadata import InputFile, Inputs, Schema, read_set
from schemas.records import DOCUMENT_FORMATS
from schemas.statistics import ShardStatistics, Statistics, by_length
from schemas.typed_json import quote, to_json
from tests.tools.places import ROOT
from tests.tools.shard_factory import (
    mlm_schema,
    replace_file,
    write_mlm_set,
)

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


@pytest.mark.parametrize(
    ("field", "value", "remedy"),
    [
        ("format_version", 1, "this Textmill reads version 3"),
        ("task", "translation", "one of c.*, mlm"),
        ("max_length", 0, "1 to 65535"),
        ("max_length", 65_536, "1 to 65535"),
        ("vocab_size", (1 << 24) + 1, "1 to 16777216"),
        ("special_ids", {"cls": 0}, "roles are bos, eos, pad, mask, unk"),
        ("all_special_ids", (0, 2), "include those of special_ids"),
        ("all_special_ids", (4, 3, 2, 1, 0), "ascending ids below vocab_size"),
        ("tokenizer_sha256", "abc", "64 hex digits"),
        ("packing", "first_fit", "one of best_fit, concat, none"),
        ("mask_rate", 1.0, "a share from 0 to below 1"),
        ("mask_unit", "phrase", "one of token, word, span"),
        ("mask_copies", 0, "a number from 1 to 65536"),
        ("mask_copies", 1 << 63, "a number from 1 to 65536"),
        ("special_ids", {"bos": 0, "pad": 1}, "static masking needs a mask token"),
        ("mask_rate", 0.3, "must be mask_rate x max_length, rounded"),
        ("golden", (("a", (50,)),), "ids below vocab_size"),
        ("seed", -1, "a number from 0 to 18446744073709551615"),
        ("splits", {}, "names of letters"),
        ("shards", {"train": 1 << 31, "validation": 1}, "up to 99999"),
        ("file_formats", ("tfrecord", "tfrecord"), "some of array_record, tfrecord"),
        ("max_masked", 17, "must be mask_rate x max_length, rounded"),
        ("splits", {"train": 0.5, "validation": 0.4}, "add up to 1"),
        ("splits", {"train": 1.0, "validation": 0.0}, "shares above 0"),
        ("splits", {"my train": 0.5, "b": 0.5}, "names of letters, digits and _"),
        ("shards", {"train": 2}, "a positive number for every split"),
        ("shards", {"train": 2, "validation": 0}, "a positive number for every split"),
        ("encoding", "zlib", "one of bytes, int64_list"),
        ("file_formats", ("parquet",), "some of array_record, tfrecord"),
        ("file_formats", (), "some of array_record, tfrecord"),
        ("features", mlm_schema(max_length=17).features, "input_ids uint16.16."),
        ("fingerprint", SHA, "the file was edited"),
    ],
)
def test_a_wrong_field_is_refused_by_name_value_and_remedy(field, value, remedy):
    good = dataclasses.replace(mlm_schema(), fingerprint="")
    with pytest.raises(DataError, match=f"(?s)^(max_masked|{field}) is .*: .*{remedy}") as refusal:
        dataclasses.replace(good, **{field: value})
    assert field == "mask_rate" or quote(value)[:20] in str(refusal.value)


def test_fingerprint_is_the_sha256_of_all_other_fields():
    values = json.loads(to_json(mlm_schema()))
    assert values.keys() == _fields(Schema)
    fingerprint = values.pop("fingerprint")
    text = json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert hashlib.sha256(text.encode()).hexdigest() == fingerprint


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
    assert longer.differences(one) == ["fields: another value"]
    # A tuple comes back from JSON as a list, which is no difference.
    assert one.differences(Schema.from_dict(json.loads(to_json(one)), "schema.json")) == []


# Reading


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda v: v.pop("seed"), r"missing fields \['seed'\], unknown fields \[\]"),
        (lambda v: v.update(speed=3), r"unknown fields \['speed'\].*build the dataset again"),
        (lambda v: v.update(seed="0"), "schema.json: seed is '0', not of type int"),
        (lambda v: v.update(seed=True), "schema.json: seed is True, not of type int"),
        (lambda v: v.update(splits=[]), r"schema.json: splits is \[\], not of type dict"),
        (lambda v: v["shards"].update(train=2.5), r"shards\.train is 2\.5, not of type int"),
        (
            lambda v: v["features"][1].update(dtype=5),
            r"schema.json: features\[1\]\.dtype is 5, not of type str",
        ),
        (
            lambda v: v["features"][0].pop("shape"),
            r"features\[0\]: missing fields \['shape'\]",
        ),
        (lambda v: v.update(golden=[["a"]]), r"golden\[0\] has 1 items, not 2"),
        (lambda v: v.update(seed=1), "schema.json: fingerprint is .*the file was edited"),
        (
            lambda v: v.update(max_length=-3),
            "schema.json: max_length is -3: a number from 1 to 65535",
        ),
    ],
)
def test_a_broken_schema_json_is_refused_with_its_place(change, message):
    values = json.loads(to_json(mlm_schema()))
    change(values)
    with pytest.raises(DataError, match="(?s)" + message):
        Schema.from_dict(values, "/sets/a/schema.json")


@pytest.mark.parametrize("values", [None, [], "schema", 3])
def test_what_is_no_object_is_refused(values):
    for read in (Schema.from_dict, Inputs.from_dict, Manifest.from_dict):
        with pytest.raises(DataError, match="x.json is .*, not of type dict"):
            read(values, "x.json")
    with pytest.raises(DataError, match="x.json: row_tokens is None, not from 0 to 131071"):
        Statistics.from_dict(values, "x.json")


_GOOD_FILE = ManifestFile("a.json", 3, SHA)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("path", "/etc/passwd"),
        ("path", "../other/a.json"),
        ("path", "rejects/../../a"),
        ("path", ""),
        ("bytes", -1),
        ("sha256", "ABC"),
        ("rows", 3),
        ("split", "train"),
    ],
)
def test_a_wrong_manifest_entry_is_refused(field, value):
    with pytest.raises(DataError, match=f"^({field}|rows) is "):
        dataclasses.replace(_GOOD_FILE, **{field: value})


def test_a_manifest_lists_each_file_once_in_order():
    other = ManifestFile("b.json", 3, SHA)
    for files in ((_GOOD_FILE, _GOOD_FILE), (other, _GOOD_FILE)):
        with pytest.raises(DataError, match="files is .*: must be sorted by path, each once"):
            Manifest(FORMAT_VERSION, SHA, files)
    with pytest.raises(DataError, match="format_version is 9: this Textmill reads version 3"):
        Manifest(9, SHA, ())


def test_a_set_is_read_as_it_was_written(real_set):
    info = read_set(str(real_set))
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


def test_metadata_of_different_sets_are_refused(real_set, tmp_path):
    copied = Path(shutil.copytree(real_set, tmp_path / "set"))
    other = mlm_schema(seed=9, file_formats=("array_record", "tfrecord"))
    replace_file(copied, "schema.json", to_json(other))
    with pytest.raises(DataError, match=r"fingerprint is '.*', not schema\.json's"):
        read_set(str(copied))


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
    assert stats.broken_equations(mask_copies=2) == []
    assert stats.broken_equations() == [
        "t-00000-of-00001: (tokens 29 + repeated 0 + specials 4 - truncated 1) x copies 1 "
        "!= tokens in rows 64"
    ]
    assert dataclasses.replace(stats, documents_read=8).broken_equations(2) == [
        "documents read 8 != kept 2 + dropped 5 (duplicates: 3 dropped; rejected: 2 empty)"
    ]
    short = dataclasses.replace(good, documents=1, dropped={"duplicates": 4})
    assert Statistics(7, {"empty": 2}, shards={"t": short}).broken_equations(2) == [
        "t: documents in length_histogram 2 != documents 1"
    ]
    other = dataclasses.replace(good, length_tokens=by_length(np.array([9, 21]))["length_tokens"])
    assert Statistics(7, {"empty": 2}, shards={"t": other}).broken_equations(2) == [
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
    for change in (
        {"total": dict(values["total"], rows=5)},
        {"splits": {}},
        {"row_tokens": 17},  # gives other densities
    ):
        with pytest.raises(DataError, match="(total|splits) does not follow from the counts"):
            Statistics.from_dict({**values, **change}, "stats.json")


def test_counts_below_zero_and_short_histograms_are_refused():
    with pytest.raises(DataError, match="tokens is -1: a count is at least 0"):
        _shard(tokens=-1)
    with pytest.raises(DataError, match="length_histogram has 2 bins, not 33"):
        _shard(length_histogram=(0, 1))


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


@pytest.mark.parametrize("name", FILES)
def test_json_schema_accepts_the_real_sidecar(real_set, name):
    _validator(name).validate(json.loads((real_set / name).read_text()))


def _break(values: dict, path: str, value) -> dict:
    """A copy with one value replaced; `path` is "features.0.dtype"."""
    values = json.loads(json.dumps(values))
    *parents, last = path.split(".")
    place = values
    for key in parents:
        place = place[int(key) if isinstance(place, list) else key]
    place[last] = value
    return values


@pytest.mark.parametrize(
    ("name", "path", "value"),
    [
        ("schema.json", "format_version", 4),
        ("schema.json", "max_length", 0),
        ("schema.json", "max_length", "16"),
        ("schema.json", "special_ids", {"cls": 0}),
        ("schema.json", "splits", {"train": 0, "validation": 1}),
        ("schema.json", "splits", {"my train": 1}),
        ("schema.json", "golden", [["a", [1], 2]]),
        ("schema.json", "fingerprint", "abc"),
        ("schema.json", "features.0.dtype", "float32"),
        ("schema.json", "features.0.more", 1),
        ("schema.json", "file_formats", []),
        ("stats.json", "total.rows", -1),
        ("stats.json", "total.packing_efficiency", 1.5),
        ("stats.json", "total.more", 1),
        ("stats.json", "splits.train.length_histogram", [0]),
        ("stats.json", "shards.train-00000-of-00002.packing_efficiency", 0.5),
        ("stats.json", "shards.train", {}),
        ("stats.json", "documents_rejected", {"empty": -1}),
        ("stats.json", "dropped", {}),
        ("stats.json", "funnel", {}),
        ("stats.json", "shards.train-00000-of-00002.dropped", {}),
        ("stats.json", "shards.train-00000-of-00002.held_out", -1),
        ("stats.json", "shards.train-00000-of-00002.duplicates", None),
        ("inputs.json", "files.0.bytes", None),
        ("inputs.json", "files.0.digest", "xyz"),
        ("MANIFEST.json", "files.0.path", "/a"),
        ("MANIFEST.json", "files.0.path", "a/../../b"),
        ("MANIFEST.json", "files.0.sha256", "abc"),
        ("MANIFEST.json", "files.0.rows", 3),
        ("MANIFEST.json", "more", 3),
    ],
)
def test_json_schema_refuses_a_broken_metadata_as_the_dataclass_does(real_set, name, path, value):
    broken = _break(json.loads((real_set / name).read_text()), path, value)
    assert not _validator(name).is_valid(broken)
    cls = {"schema.json": Schema, "stats.json": Statistics, "inputs.json": Inputs}.get(
        name, Manifest
    )
    with pytest.raises(DataError):
        cls.from_dict(broken, name)


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
        assert sorted(expected - {"trained"}) == listed["required"]


def test_json_schemas_know_the_same_values_as_the_code():
    properties = _json_schema("schema.json")["properties"]
    histogram = _json_schema("stats.json")["$defs"]["counts"]["properties"]["length_histogram"]
    assert properties["format_version"]["const"] == FORMAT_VERSION
    assert all(re.search(properties["task"]["pattern"], task) for task in features.TASKS)
    assert tuple(properties["packing"]["enum"]) == metadata.PACKINGS
    assert tuple(properties["mask_unit"]["enum"]) == metadata.MASK_UNITS
    assert tuple(properties["special_ids"]["propertyNames"]["enum"]) == metadata.ROLES
    assert tuple(properties["encoding"]["enum"]) == codec.ENCODINGS
    format_name = properties["file_formats"]["items"]["pattern"]
    assert all(re.search(format_name, name) for name in (*records.FORMATS, *DOCUMENT_FORMATS))
    assert properties["max_length"]["maximum"] == features.MAX_TOKENS - 1
    assert histogram["minItems"] == histogram["maxItems"] == statistics.HISTOGRAM_BINS
