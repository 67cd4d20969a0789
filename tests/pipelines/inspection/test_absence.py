"""verify --absent finds listed documents in datasets and in the cache, and proves that none is."""

import json
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest

from tests.tools.class_factory import write_class_set
from tests.tools.clm_factory import write_clm_set
from tests.tools.shard_factory import mlm_schema, packed_rows, write_set
from textmill.pipelines.inspection.checks.absence import search_cache, search_dataset
from textmill.pipelines.verify import main
from textmill.schemas.errors import DataError, UsageError
from textmill.schemas.files.cache import Cache, cache_key
from textmill.schemas.files.set_files import open_files
from textmill.schemas.format.digests import Digests
from textmill.schemas.format.row_documents import RowDocuments

UNKNOWN = "ab" * 16
TRAIN, VALIDATION = "train-00001-of-00002", "validation-00000-of-00001"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    """The cache of this host, which is not there yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))  # other runs have folders
    return tmp_path / "home" / "textmill"


@pytest.fixture
def directory(tmp_path) -> Path:
    write_clm_set(tmp_path / "set")
    return tmp_path / "set"


def digests_in(directory: Path, name: str) -> np.ndarray:
    return RowDocuments(str(directory / f"{name}.documents")).digests


def rows_with(directory: Path, name: str, digest: str) -> list[int]:
    found = RowDocuments(str(directory / f"{name}.documents")).rows_of(bytes.fromhex(digest))
    return found.tolist()


def some_of(directory: Path, name: str, *numbers: int) -> list[str]:
    return [digests_in(directory, name)[number].tobytes().hex() for number in numbers]


def listed(tmp_path: Path, *digests: str) -> str:
    path = tmp_path / "list.txt"
    path.write_text("\n".join(digests))
    return f"--absent={path}"


def failure(*words: object) -> list[str]:
    with pytest.raises(DataError) as error:
        main([*map(str, words)])
    return str(error.value).splitlines()


def bad(place: object, flag: str, problems: str) -> str:
    return f"{place} is not shown to be without the documents of {flag}, {problems}:"


def test_rows_of_listed_documents_are_named(directory, tmp_path):
    first, second = some_of(directory, TRAIN, 3, 30)
    [third] = some_of(directory, VALIDATION, 0)
    flag = listed(tmp_path, first, UNKNOWN, second, third)
    [a], [b], [c] = (
        rows_with(directory, name, digest)
        for name, digest in [(TRAIN, first), (TRAIN, second), (VALIDATION, third)]
    )
    assert failure(directory, flag) == [
        bad(directory, flag, "3 problems"),
        f"  {TRAIN}.documents: document {first} is in row {a}",
        f"  {TRAIN}.documents: document {second} is in row {b}",
        f"  {VALIDATION}.documents: document {third} is in row {c}",
    ]


def test_the_rows_of_masked_copies_are_all_counted(tmp_path):
    directory = tmp_path / "set"
    schema = mlm_schema(mask_copies=7, shards={"train": 2, "validation": 1})
    once = {"train": packed_rows(schema, 6, 1), "validation": packed_rows(schema, 6, 2)}
    copied = {name: np.repeat(values, 7, axis=0) for name, values in once["train"].items()}
    write_set(directory, schema, {**once, "train": copied})
    [digest] = some_of(directory, TRAIN, 4)
    rows = rows_with(directory, TRAIN, digest)
    assert len(rows) == 7
    found = search_dataset(str(directory), Digests(bytes.fromhex(digest)))
    shown = ", ".join(map(str, rows[:5]))
    assert found.problems == [f"{TRAIN}.documents: document {digest} is in rows {shown} and 2 more"]


def test_twenty_documents_are_shown_and_the_rest_counted(directory, tmp_path):
    some = digests_in(directory, TRAIN)[:23]
    flag = listed(tmp_path, *(one.tobytes().hex() for one in some))
    lines = failure(directory, flag)
    assert lines[0] == bad(directory, flag, "23 problems")
    assert (len(lines), lines[-1]) == (22, "  and 3 more")


def test_a_set_without_them_is_ok(directory, tmp_path, capsys, cache):
    flag = listed(tmp_path, UNKNOWN)
    main([str(directory), flag])
    printed = capsys.readouterr().out
    assert printed.startswith("ok: 1 dataset, 50 rows, ")
    assert printed.endswith(f" s; no document of {flag} there or in {cache}\n")


def test_files_that_nothing_describes_prove_nothing(directory, tmp_path):
    flag = listed(tmp_path, UNKNOWN)
    for name in (".staging.0a/scratch/b", ".staging.0a/c", "rejects/old.jsonl", "README.md"):
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text("some text")
    (directory / "more").symlink_to(tmp_path)
    (directory / ".lock").write_bytes(b"")
    other = "is not listed in MANIFEST.json and was not searched: delete it or move it away"
    assert failure(directory, flag) == [
        bad(directory, flag, "3 problems"),
        *(f"  {name} {other}" for name in (".staging.0a", "more", "rejects/old.jsonl")),
    ]


def test_temporary_folders_of_runs_are_named(directory, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    for name in ("textmill-full", "textmill-empty", "other"):
        (tmp_path / "tmp" / name).mkdir(parents=True)
    (tmp_path / "tmp/textmill-full/shard").write_bytes(b"rows")
    (tmp_path / "tmp/textmill-file").write_bytes(b"")
    main([str(directory), listed(tmp_path, UNKNOWN)])
    assert capsys.readouterr().err == (
        f"note: {tmp_path}/tmp/textmill-full/ was not searched: delete it if no run uses it\n"
    )


def test_documents_of_several_fields_are_noted(tmp_path, capsys):
    write_class_set(tmp_path / "set")
    main([str(tmp_path / "set"), listed(tmp_path, UNKNOWN)])
    assert capsys.readouterr().err == (
        f"note: {tmp_path / 'set'}: documents of classification have the hash of all their fields, "
        "not the `id` of a corpus: the list must have the digests that inspect_shards prints\n"
    )


def test_wrong_flags(directory, tmp_path):
    (tmp_path / "list.txt").write_text("0123\n")
    for words, due in {
        (f"--absent={tmp_path / 'list.txt'}",): "list.txt, line 1: '0123' is not a digest",
        ("--absent=none.txt",): "--absent=none.txt cannot be read",
        (f"--cache_dir={tmp_path}",): f"--cache_dir={tmp_path} needs --absent=FILE",
        (listed(tmp_path / "..", UNKNOWN), "--cache_dir=gone"): "--cache_dir=gone is not a direc",
    }.items():
        with pytest.raises(UsageError, match=due):
            main([str(directory), *words])


# The cache


@pytest.fixture
def cached(directory, gs_store, cache) -> Path:
    """The directory in the cache of the set, of which a shard and its documents are there."""
    url = gs_store.upload(directory, "sets/one")
    files = open_files(url, Cache())
    for ending in ("tfrecord", "documents"):
        files.fetch(f"{TRAIN}.{ending}")
    (cache / "tokenizers").mkdir()
    return cache / cache_key((directory / "MANIFEST.json").read_bytes())


def test_a_cached_shard_is_searched_by_the_documents_beside_it(
    directory, cached, tmp_path, capsys, cache
):
    [digest] = some_of(directory, TRAIN, 3)
    [row] = rows_with(directory, TRAIN, digest)
    assert search_cache(str(cache), Digests(bytes.fromhex(UNKNOWN)), {}) == []
    flag = listed(tmp_path, digest)
    found = search_cache(str(cache), Digests(bytes.fromhex(digest)), {})
    assert found == [
        f"{cached.name}/{TRAIN}.documents: document {digest} is in row {row}: delete {cached}"
    ]
    lines = failure(directory, flag)
    assert lines[2:] == [
        bad(cache, flag, "1 problem"),
        f"  {cached.name} has files of a dataset that holds them: delete {cached}",
    ]
    shutil.rmtree(cached)
    assert failure(directory, flag) == lines[:2]
    main([str(directory), listed(tmp_path, UNKNOWN)])


@pytest.mark.parametrize(
    "name",
    [
        "validation-00000-of-00001.tfrecord",
        "validation-00000-of-00001.tfrecord.part",
        "pieces/validation-00000-of-00001.tfrecord-0",
        "pieces/validation-00000-of-00001.tfrecord-0.part",
        "evaluation.jsonl",
    ],
)
def test_cached_rows_of_unknown_documents_prove_nothing(name, directory, cached, tmp_path, cache):
    (cached / name).parent.mkdir(exist_ok=True)
    (cached / name).write_bytes(b"rows")
    flag = listed(tmp_path, UNKNOWN)
    other = tmp_path / "other"
    write_clm_set(other, seed=1)
    assert failure(other, flag, f"--cache_dir={cache}") == [
        bad(cache, flag, "1 problem"),
        f"  {cached.name} has 1 file of rows whose documents are not known, such as {name}: "
        f"delete {cached}, or verify its dataset in the same call",
    ]
    main([str(other), str(directory), flag])  # that is, in this call
    for path in cached.rglob("*"):
        if path.name == f"{TRAIN}.documents":
            path.write_bytes(b"damaged")
    [problem] = search_cache(str(cache), Digests(bytes.fromhex(UNKNOWN)), {})
    assert f"{cached.name} has 2 files of rows" in problem


def test_a_set_in_a_bucket_is_searched(directory, gs_store, tmp_path):
    [digest] = some_of(directory, TRAIN, 3)
    (directory / ".staging").mkdir()
    (directory / ".staging" / "part").write_bytes(b"text")
    url = gs_store.upload(directory, "sets/two")
    flag = listed(tmp_path, digest)
    first, *problems = failure(url, flag)
    assert first == bad(url, flag, "2 problems")
    assert f"{TRAIN}.documents: document {digest}" in problems[0]
    assert problems[1].startswith("  .staging is not listed")


def test_a_function_takes_the_list(directory, tmp_path):
    import textmill

    _, _, path = listed(tmp_path, UNKNOWN).partition("=")
    assert textmill.verify(directory, absent=Path(path))["dataset"] == 1
    Path(path).write_text(json.dumps(some_of(directory, TRAIN, 1)[0]).strip('"'))
    with pytest.raises(textmill.DataError, match="is not shown to be without the documents"):
        textmill.verify(directory, absent=path)
