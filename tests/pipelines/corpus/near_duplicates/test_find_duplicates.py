"""find_duplicates: the pairs that a comparison of all finds, in the same bytes however it runs."""

import gzip
import json
import os
import random
from dataclasses import replace

import pyarrow.parquet as pq
import pytest

from pipelines.corpus.near_duplicates import job
from pipelines.corpus.near_duplicates.result import read_result
from pipelines.find_duplicates import main
from pipelines.readers import sources
from pipelines.runners import shuffle
from pipelines.verify import main as verify
from schemas.errors import DataError, UsageError
from tests.tools.near_factory import digest_of, near_documents, removals

DOCUMENTS = near_documents(400)
# Of 32 bands of 4 hashes, a pair of similarity 0.8 meets with a probability of 0.99999994.
BANDS = "--bands=32x4"


def write(path, documents):
    content = "".join(json.dumps({"text": text}) + "\n" for text in documents).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def find(pattern, output, *flags):
    main([f"--input={pattern}", f"--output={output}", BANDS, *flags])
    return parts(output)


def parts(output):
    """The files of documents, in bytes, and the counts."""
    names = sorted(name for name in os.listdir(output) if name.endswith(".parquet"))
    return [(output / name).read_bytes() for name in (*names, "duplicates.json")]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write(tmp_path_factory.mktemp("corpus") / "near.jsonl", DOCUMENTS)


@pytest.fixture(scope="module")
def made(corpus, tmp_path_factory):
    output = tmp_path_factory.mktemp("made") / "found"
    find(corpus, output)
    return output


@pytest.fixture
def small_blocks(monkeypatch):
    """Cuts inputs as if they were large: into a dozen blocks."""
    plan = sources.plan_blocks
    monkeypatch.setattr(
        "pipelines.corpus.near_duplicates.run.plan_blocks",
        lambda source: plan(replace(source, block_bytes=10_000)),
    )


def test_all_pairs_compared_give_the_same(made):
    expected = removals(DOCUMENTS)
    rows = pq.read_table(made / "duplicates-00000-of-00001.parquet").to_pylist()
    assert [row["document"] for row in rows] == sorted(map(digest_of, expected))
    found = {row["document"]: (row["representative"], row["similarity"]) for row in rows}
    assert len(expected) > 50
    for document, (representative, similarity) in expected.items():
        assert found[digest_of(document)] == (digest_of(representative), similarity)
    assert all(row["cluster"] == row["representative"] for row in rows)
    counts = read_result(str(made)).found
    assert counts.documents_read == 400 == counts.exact_duplicates + counts.distinct
    assert counts.distinct == len(set(DOCUMENTS)) and counts.near_duplicates == len(expected)
    assert sum(counts.clusters.values()) == len({whom for whom, _ in expected.values()})
    assert counts.pairs_verified >= len(expected) and counts.uncompared == 0
    verify([str(made)])


@pytest.mark.parametrize(
    "flags",
    [
        ["--exchange=runner"],
        ["--direct_runner_bundle_repeat=2"],
        ["--direct_running_mode=multi_threading", "--direct_num_workers=2"],
        pytest.param(
            ["--direct_running_mode=multi_processing", "--direct_num_workers=2"],
            marks=pytest.mark.slow,
        ),
    ],
    ids=" ".join,
)
def test_any_way_to_run_gives_the_same_bytes(made, corpus, small_blocks, tmp_path, flags):
    assert find(corpus, tmp_path / "found", *flags) == parts(made)


@pytest.mark.parametrize("way", ["files", "runner"])
def test_any_number_of_partitions_and_what_waits_may_go_at_any_time(
    made, corpus, small_blocks, tmp_path, monkeypatch, way
):
    monkeypatch.setattr(job, "_PARTITION_BYTES", 20_000)
    monkeypatch.setattr(job, "_PARTITIONS_OF_ONE_PLACE", 4)  # of more, some decide in rounds
    monkeypatch.setattr(shuffle, "BUFFER_BYTES", 20_000)
    assert job.count_partitions(corpus.stat().st_size) == 8
    assert find(corpus, tmp_path / "found", f"--exchange={way}") == parts(made)


@pytest.mark.parametrize("files", [1, 20])
def test_any_layout_of_the_files_gives_the_same_bytes(made, tmp_path, files):
    documents = DOCUMENTS.copy()
    random.Random(files).shuffle(documents)
    for number in range(files):
        name = f"part-{number}.jsonl{'.gz' if number % 2 else ''}"
        write(tmp_path / name, documents[number::files])
    assert find(f"{tmp_path}/part-*", tmp_path / "found") == parts(made)


def test_files_of_the_result_cut_it_by_digest(made, corpus, tmp_path):
    find(corpus, tmp_path / "found", "--num_files=3")
    names = [f"duplicates-0000{number}-of-00003.parquet" for number in range(3)]
    tables = [pq.read_table(tmp_path / "found" / name) for name in names]
    whole = pq.read_table(made / "duplicates-00000-of-00001.parquet")
    assert all(len(table) for table in tables)
    assert [row for table in tables for row in table.to_pylist()] == whole.to_pylist()
    verify([str(tmp_path / "found")])
    find(corpus, tmp_path / "found", "--overwrite")
    assert parts(tmp_path / "found") == parts(made)


def test_a_second_run_finds_it_or_says_what_differs(corpus, tmp_path, capsys):
    output = tmp_path / "found"
    first = find(corpus, output)
    assert find(corpus, output) == first
    assert "holds this very result already: nothing to do" in capsys.readouterr().out
    with pytest.raises(UsageError, match=r"shingle 'word:5', not 'word:3'.*--overwrite"):
        find(corpus, output, "--shingle=word:3")
    other = write(tmp_path / "other.jsonl", DOCUMENTS[:-1] + [DOCUMENTS[-1][::-1]])
    with pytest.raises(UsageError, match="files of the same sizes but other content"):
        find(other, output)
    assert parts(output) == first
    assert find(corpus, output, "--shingle=char:24", "--overwrite") != first


def test_only_the_plan_with_dry_run(corpus, tmp_path, capsys):
    main([f"--input={corpus}", f"--output={tmp_path}/found", "--dry_run"])
    said = " ".join(capsys.readouterr().out.split())
    assert "by 14 bands of 8 hashes" in said and "0.8 92.4 %" in said
    assert not (tmp_path / "found").exists()


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("--near_duplicates=0.8", "a finished result is for build_shards"),
        ("--near_duplicates=jaccard:80", "no threshold"),
        ("--near_duplicates=", "--near_duplicates is empty"),
        ("--shingle=five", "no shingle: give word:5"),
        ("--bands=14", "does not cut a signature: give"),
        ("--num_files=0", "--num_files=0: from 1"),
        ("--max_words=7", "no such flag|--max_words"),
    ],
)
def test_flags_that_cannot_work(corpus, tmp_path, flag, said):
    with pytest.raises(UsageError, match=said):
        main([f"--input={corpus}", f"--output={tmp_path}/found", flag])


def test_directories_of_others_stay_as_they_are(corpus, tmp_path):
    (tmp_path / "MANIFEST.json").write_text("{}")
    with pytest.raises(UsageError, match="holds a shard set .*which must stay"):
        find(corpus, tmp_path, "--overwrite")
    with pytest.raises(UsageError, match="is where the input"):
        find(corpus, corpus.parent)


def test_damage_is_said_with_the_file(made, corpus, tmp_path):
    output = tmp_path / "found"
    find(corpus, output)
    path = output / "duplicates-00000-of-00001.parquet"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(DataError, match=r"00000-of-00001.parquet: its sha256 is not the one"):
        verify([str(output)])
    counts = output / "duplicates.json"
    counts.write_text(counts.read_text().replace('"kept": ', '"kept": 1'))
    with pytest.raises(DataError, match=r"duplicates.json: its sha256 .* run find_duplicates anew"):
        find(corpus, output)


def test_a_filter_that_changes_its_mind_is_told(corpus, tmp_path, monkeypatch):
    (tmp_path / "fickle.py").write_text(
        "seen = set()\n\n\ndef drop(document):\n    text = document['text']\n"
        "    again = text in seen\n    seen.add(text)\n    return 'seen' if again else None\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(DataError, match="gave other documents when it was read again.*--filter"):
        find(corpus, tmp_path / "found", "--filter=fickle:drop")
    assert os.listdir(tmp_path / "found") == [".lock"]


def test_nothing_near_and_nothing_at_all(tmp_path):
    alone = write(tmp_path / "alone.jsonl", ["one two three four five six", "...", "!!!"])
    find(alone, tmp_path / "found")
    counts = read_result(str(tmp_path / "found")).found
    assert (counts.distinct, counts.without_words, counts.near_duplicates) == (1, 2, 0)
    assert counts.clusters == {}
    verify([str(tmp_path / "found")])
    nothing = write(tmp_path / "nothing.jsonl", ["...", "!!!"])
    with pytest.raises(DataError, match="no document is left to compare"):
        find(nothing, tmp_path / "none")
