"""Deltas: corpora that are built against older ones, which stay as they are."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from xxhash import xxh3_128_hexdigest

from tests.golden.outputs import KEPT
from tests.tools.corpus_factory import build, rows_of, sums_of, texts_of, write_lines
from textmill.pipelines import build_shards, verify
from textmill.schemas.errors import DataError, UsageError
from textmill.schemas.files.finished import read_dataset

OLD = [f"document {n} has five words" for n in range(60)]
NEW = [f"page {n} is new and has eight words" for n in range(40)]
LAST = [f"the last snapshot wrote text {n}" for n in range(30)]
SNAPSHOTS = [OLD, [*NEW, *OLD[50:], NEW[0]], [*LAST, *NEW[30:], *OLD[:5]]]


def digest(text):
    return xxh3_128_hexdigest(text.encode())


def known_of(corpus):
    """The ids of removed documents of older corpora."""
    names = corpus.schema.older_names()
    rows = [row for n in names for row in pq.read_table(f"{corpus.directory}/{n}").to_pylist()]
    assert all(row["representative"] == row["id"] and row["similarity"] == 1 for row in rows)
    return [row["id"] for row in rows]


def build_chain(tmp_path, snapshots, *flags, again=""):
    """A corpus, and deltas of the later snapshots, each against all before it."""
    chain = []
    for number, texts in enumerate(snapshots):
        source = write_lines(tmp_path / f"{number}{again}.jsonl", texts)
        against = [f"--against={','.join(one.directory for one in chain)}"] * bool(chain)
        output = tmp_path / f"corpus_{number}{again}"
        chain.append(build(source, output, f"--num_files={number + 2}", *against, *flags))
    return chain


def shards_of(inputs, directory, *flags):
    """Path to sha256 of the shards of the union of several corpora."""
    build_shards.main(
        [
            *(f"--input={corpus.directory}" for corpus in inputs),
            *(f"--output={directory}", f"--tokenizer={KEPT / 'bpe'}"),
            *("--splits=train:0.8,validation:0.2", "--num_shards=train:2,validation:1"),
            *("--max_length=32", *flags),
        ]
    )
    files = read_dataset(str(directory)).manifest.files
    return {file.path: file.sha256 for file in files if file.split}


@pytest.mark.parametrize("shuffle_by", ["files", "runner"])
def test_the_union_is_a_build_of_all_at_once(tmp_path, shuffle_by):
    chain = build_chain(tmp_path, SNAPSHOTS, f"--shuffle_by={shuffle_by}")
    assert [texts_of(corpus) for corpus in chain] == [sorted(OLD), sorted(NEW), sorted(LAST)]
    assert [corpus.stats.dropped for corpus in chain] == [
        {},
        {"duplicates": 1, "older_duplicates": 10},
        {"older_duplicates": 15},
    ]
    assert known_of(chain[1]) == sorted(map(digest, OLD[50:]))
    assert known_of(chain[2]) == sorted(map(digest, [*NEW[30:], *OLD[:5]]))
    assert [len(corpus.schema.ancestors) for corpus in chain] == [0, 1, 2]
    assert chain[1].schema.ancestors == (chain[0].identity,)
    source = write_lines(tmp_path / "whole.jsonl", sum(SNAPSHOTS, []))
    whole = build(source, tmp_path / "whole", "--num_files=5")
    assert texts_of(whole) == sorted(sum(map(texts_of, chain), []))
    shards = shards_of([whole], tmp_path / "shards")
    assert shards_of(chain, tmp_path / "shards_of_chain") == shards and len(shards) == 6


def test_bytes_do_not_depend_on_the_order_of_older_corpora_or_of_records(tmp_path):
    chain = build_chain(tmp_path, SNAPSHOTS)
    source = write_lines(tmp_path / "again.jsonl", SNAPSHOTS[2][::-1])
    older = ",".join(corpus.directory for corpus in chain[1::-1])
    flags = [f"--against={older}", "--num_files=4", "--shuffle_by=runner"]
    again = build(source, tmp_path / "again", *flags, "--direct_runner_bundle_repeat=1")
    assert sums_of(again) == sums_of(chain[2])
    assert again.schema == chain[2].schema


@pytest.mark.parametrize("file_format", ["parquet", "jsonl"])
def test_older_fields_stay(tmp_path, file_format):
    flags = ["--keep_fields=url", "--num_files=1", f"--file_format={file_format}"]
    records = [{"text": "the same text", "url": "z"}, {"text": "an old text", "url": "z"}]
    old = build(write_lines(tmp_path / "old.jsonl", records), tmp_path / "old", *flags)
    records = [{"text": "the same text", "url": "a"}, {"text": "a new text", "url": "a"}]
    source = write_lines(tmp_path / "new.jsonl", records)
    delta = build(source, tmp_path / "new", f"--against={old.directory}", *flags)
    assert delta.stats.dropped == {"older_duplicates": 1}
    assert texts_of(build(tmp_path / "new", tmp_path / "copy")) == ["a new text"]
    removed = delta.stats.funnel.removed["older_duplicates"]
    assert [sample.document for sample in removed.samples] == [digest("the same text")]


def test_edits_may_make_a_document_equal_to_an_older_one(tmp_path):
    menu = "Home | News | About us"
    pages = [f"{menu}\n\nThis is page {n} of the site" for n in range(5)]
    flags = ["--duplicate_paragraphs=paragraph:2", "--num_files=2"]
    edited = texts_of(build(write_lines(tmp_path / "0.jsonl", pages), tmp_path / "0", *flags))
    cut = [text for text in edited if text.startswith("This is page")]
    assert len(cut) == 4
    old = build(write_lines(tmp_path / "old.jsonl", [cut[0], "old"]), tmp_path / "old")
    source = write_lines(tmp_path / "new.jsonl", [*pages, "old"])
    delta = build(source, tmp_path / "new", f"--against={old.directory}", *flags)
    assert texts_of(delta) == sorted({*edited} - {cut[0]})
    assert delta.stats.dropped == {"older_duplicates": 2}
    assert sorted(known_of(delta)) == sorted([digest(cut[0]), digest("old")])
    verify.main([old.directory, delta.directory])


def test_what_is_forgotten_in_each_corpus_is_forgotten_in_the_union(tmp_path):
    chain = build_chain(tmp_path, SNAPSHOTS[:2])
    gone = [OLD[3], OLD[55], NEW[7]]
    digests = tmp_path / "digests.txt"
    digests.write_text("".join(f"{digest(text)}\n" for text in gone))
    forget = f"--forget={digests}"
    old = build(tmp_path / "corpus_0", tmp_path / "old_2", "--num_files=2", forget)
    against = f"--against={old.directory}"
    delta = build(tmp_path / "corpus_1", tmp_path / "delta_2", "--num_files=3", against, forget)
    assert texts_of(old) + texts_of(delta) == sorted({*OLD} - {*gone}) + sorted({*NEW} - {*gone})
    shards = shards_of(chain, tmp_path / "shards", forget)
    assert shards_of([old, delta], tmp_path / "shards_2") == shards
    # From the new text, OLD[55] is forgotten, too.
    again = build(tmp_path / "1.jsonl", tmp_path / "again", "--num_files=3", against, forget)
    assert sums_of(again)[again.documents[0].path] == delta.documents[0].sha256
    assert again.stats.dropped["forgotten"] == 2


def test_evaluation_texts_are_kept_out_of_a_delta(tmp_path):
    question = "How many roads must a man walk down before you call him a man at last"
    old = build_chain(tmp_path, [OLD])[0]
    questions = write_lines(tmp_path / "questions.jsonl", [question])
    source = write_lines(tmp_path / "new.jsonl", [*NEW, f"{question}, he asked", OLD[0]])
    flags = [f"--against={old.directory}", f"--decontaminate={questions}"]
    delta = build(source, tmp_path / "new", *flags)
    assert texts_of(delta) == sorted(NEW)
    assert delta.stats.dropped == {"contaminated": 1, "older_duplicates": 1}


def test_bad_flags_are_refused(tmp_path):
    chain = build_chain(tmp_path, SNAPSHOTS[:2])
    source, output = tmp_path / "1.jsonl", tmp_path / "output"

    def refuse(words, *flags, output=output):
        with pytest.raises(UsageError, match=words):
            build(source, output, *flags)

    refuse("it is not a corpus: give finished outputs", f"--against={tmp_path}")
    refuse("it is not a corpus: give finished outputs", f"--against={chain[0].directory},")
    missing = chain[0].identity[:12]
    refuse(rf"built against a corpus .*{missing}", f"--against={chain[1].directory}")
    form = "normalized otherwise: give --normalize=nfc"
    refuse(form, f"--against={chain[0].directory}", "--normalize=nfkc")
    refuse("contains the input", f"--against={chain[0].directory}", output=Path(chain[0].directory))
    build(source, output)
    refuse("against", f"--against={chain[0].directory}")


def test_verify_compares_a_chain(tmp_path, capsys):
    chain = build_chain(tmp_path, SNAPSHOTS)
    directories = [corpus.directory for corpus in chain]
    verify.main(directories)
    assert "ok: 3 corpora, 130 documents" in capsys.readouterr().out
    verify.main(directories[2:])
    assert "give these corpora in the same command" in capsys.readouterr().err
    other = build(tmp_path / "0.jsonl", tmp_path / "other", "--min_words=1")
    missing = f"no corpus of this command is its ancestor {chain[0].identity[:12]}"
    with pytest.raises(DataError, match=missing):
        verify.main([other.directory, *directories[1:]])


def test_verify_finds_documents_of_an_ancestor_and_lists_that_are_wrong(tmp_path):
    """The delta is edited so that only the comparison with its ancestor shows it."""
    old, other = build_chain(tmp_path, [OLD, NEW])[0], build_chain(tmp_path, [OLD[:3]], again="b")
    source = write_lines(tmp_path / "more.jsonl", [*OLD, *NEW])
    # Built against another corpus, whose name in the delta is replaced.
    delta = build(source, tmp_path / "delta", f"--against={other[0].directory}", "--num_files=1")
    schema = json.loads(Path(delta.directory, "schema.json").read_text())
    assert schema["parameters"]["against"] == [other[0].identity]
    with pytest.raises(DataError, match="a document is in its ancestor"):
        rename(delta, old.identity)
        verify.main([old.directory, delta.directory])
    rename(delta, build_chain(tmp_path, [LAST], again="c")[0].identity)
    with pytest.raises(DataError, match=rf"no ancestor has the .* {min(map(digest, OLD[:3]))}"):
        verify.main([str(tmp_path / "corpus_0c"), delta.directory])


def rename(delta, identity):
    """Changes the ancestor of a delta, with all hashes of metadata files."""
    from textmill.pipelines.writers.shard_files import describe_file
    from textmill.schemas.files.finished import Corpus, open_finished
    from textmill.schemas.format.corpus_metadata import CorpusSchema
    from textmill.schemas.format.manifest import Manifest
    from textmill.schemas.typed_json import to_json

    corpus = open_finished(Corpus, delta.directory)
    schema = corpus.schema
    changed = CorpusSchema(
        parameters={**schema.parameters, "against": [identity]},
        columns=schema.columns,
        files=schema.files,
        file_format=schema.file_format,
    )
    content = to_json(changed)
    Path(delta.directory, "schema.json").write_bytes(content)
    files = [file for file in corpus.manifest.files if file.path != "schema.json"]
    files = sorted([*files, describe_file("schema.json", content)], key=lambda file: file.path)
    manifest = Manifest(corpus.manifest.format_version, changed.fingerprint, tuple(files))
    Path(delta.directory, "MANIFEST.json").write_bytes(to_json(manifest.to_dict()))


def test_rows_name_the_older_document(tmp_path):
    old, delta = build_chain(tmp_path, SNAPSHOTS[:2])
    ids = {row["id"] for row in rows_of(old)}
    assert {*known_of(delta)} < ids
