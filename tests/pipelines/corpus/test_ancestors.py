"""Deltas: corpora that are built against older ones, which stay as they are."""

import json
import random
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from xxhash import xxh3_128_hexdigest

from tests.golden.outputs import KEPT
from tests.tools.corpus_factory import build, rows_of, sums_of, texts_of, write_lines
from tests.tools.model_files import model_bytes
from tests.tools.near_duplicates import near_documents
from tests.tools.places import ROOT
from textmill.pipelines import build_shards, train_tokenizer, verify
from textmill.schemas.errors import DataError, UsageError
from textmill.schemas.files.finished import Corpus, open_finished, read_dataset

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


@pytest.mark.parametrize(
    "flags",
    [
        [],
        ["--near_duplicates=jaccard:0.5", "--bands=32x4"],
        ["--duplicate_paragraphs=line:1"],
        ["--quality_model={model}", "--keep_best=0.3"],
    ],
    ids=" ".join,
)
def test_a_delta_may_be_empty(tmp_path, flags, capsys):
    (tmp_path / "model").write_bytes(model_bytes(3, labels=3))
    flags = [flag.format(model=tmp_path / "model") for flag in [*flags, "--keep_fields=url"]]
    chain = build_chain(tmp_path, [OLD, NEW], "--keep_fields=url")
    older = ",".join(one.directory for one in chain)
    is_near = "--bands=32x4" in flags
    texts = [OLD[3], NEW[4], f"{NEW[5]} more"] if is_near else SNAPSHOTS[0]
    source = write_lines(tmp_path / "source.jsonl", texts)
    capsys.readouterr()
    empty = build(source, tmp_path / "empty", "--num_files=3", f"--against={older}", *flags)
    counts = "2 have the text of an older one, 1 is a near-duplicate of an older one "
    counts += "(--near_duplicates=jaccard:0.5)"
    counts = counts if is_near else "60 have the text of an older one"
    out = capsys.readouterr().out
    words = " ".join(out.split())
    said = f"of {len(texts)} documents, compared with {older.replace(',', ', ')}, {counts}; other"
    assert "warning: no document is new, so" in words and said in words.replace("- ", "-")
    assert "check the field's name" not in out and "make shards" not in out
    assert empty.stats.total().documents == 0
    assert len(known_of(empty)) == len(texts) - is_near
    assert (tmp_path / "empty" / "report.html").stat().st_size > 10_000
    verify.main([*older.split(","), empty.directory])


@pytest.mark.parametrize("file_format", ["parquet", "jsonl"])
def test_other_commands_accept_an_empty_delta(tmp_path, file_format):
    flags = f"--file_format={file_format}"
    *older, empty = build_chain(tmp_path, [OLD, NEW, [OLD[3], OLD[3], NEW[4]]], flags)
    assert empty.stats.total().documents == 0
    shards = shards_of(older, tmp_path / "shards")
    assert shards_of([*older, empty], tmp_path / "shards_2") == shards
    tokenizers = []
    for number, corpora in enumerate([older, [empty, *older]]):
        output = tmp_path / f"tokenizer_{number}"
        inputs = [f"--input={one.directory}" for one in corpora]
        train_tokenizer.main([*inputs, f"--output={output}", "--vocab_size=300"])
        tokenizers.append((output / "tokenizer.json").read_bytes())
    assert tokenizers[0] == tokenizers[1]
    # The next crawl is compared with it, too.
    against = f"--against={','.join(one.directory for one in [*older, empty])}"
    source = write_lines(tmp_path / "next.jsonl", [*LAST, OLD[0]])
    assert texts_of(build(source, tmp_path / "next", against, "--num_files=2")) == sorted(LAST)
    with pytest.raises(DataError, match="no rows|no document is left"):
        shards_of([empty], tmp_path / "none")


def test_a_delta_of_filtered_documents_only_is_an_error(tmp_path):
    """A flag is probably wrong, and no older corpus has the documents."""
    old = build_chain(tmp_path, [OLD])[0]
    flags = [f"--against={old.directory}", "--min_chars=1000"]
    with pytest.raises(DataError, match=r"no document is left to write; 40 were read \(40 min_cha"):
        build(write_lines(tmp_path / "new.jsonl", NEW), tmp_path / "new", *flags)


def test_a_delta_of_forgotten_documents_is_empty(tmp_path):
    chain = build_chain(tmp_path, [OLD, [*NEW[:2], OLD[0]]])
    digests = tmp_path / "digests.txt"
    digests.write_text("".join(f"{digest(text)}\n" for text in NEW[:2]))
    flags = [f"--against={chain[0].directory}", f"--forget={digests}"]
    delta = build(tmp_path / "corpus_1", tmp_path / "delta_2", *flags)
    assert rows_of(delta) == [] and delta.stats.dropped == {"forgotten": 2}
    verify.main([chain[0].directory, delta.directory])


def test_the_best_are_a_share_of_the_new_documents(tmp_path):
    """What --keep_best dropped is in no corpus, so a later crawl may have it again."""
    (tmp_path / "model").write_bytes(model_bytes(3, labels=3))
    model = f"--quality_model={tmp_path / 'model'}"
    draw = random.Random(0)
    words = "the a film er good bad x".split()
    texts = [f"{' '.join(draw.choices(words, k=5))} {n}" for n in range(300)]
    old = build_chain(tmp_path, [texts[:100]], model, "--keep_best=0.1")[0]
    source = write_lines(tmp_path / "new.jsonl", texts)
    flags = [f"--against={old.directory}", model, "--num_files=3"]
    every = rows_of(build(source, tmp_path / "every", *flags))
    assert len(rows_of(old)) == 10 and len(every) == 290
    ordered = sorted(every, key=lambda row: (-row["quality"], row["id"]))
    best = build(source, tmp_path / "best", *flags, "--keep_best=0.3")
    assert rows_of(best) == sorted(ordered[:87], key=lambda row: row["id"])
    assert best.stats.dropped == {"older_duplicates": 10, "not_best": 203}
    again = {*texts[:100]} & {*texts_of(best)}
    assert again and not {*texts_of(old)} & {*texts_of(best)}
    verify.main([old.directory, best.directory])

    # Built again from itself, a delta keeps what it has; from its input, the share is of the rest.
    gone = [row["id"] for row in ordered[:10]]
    (tmp_path / "digests.txt").write_text("".join(f"{one}\n" for one in gone))
    forget = f"--forget={tmp_path / 'digests.txt'}"
    kept = build(tmp_path / "best", tmp_path / "kept", flags[0], forget, "--keep_fields=quality")
    assert texts_of(kept) == sorted(row["text"] for row in ordered[10:87])
    rest = build(source, tmp_path / "rest", *flags, "--keep_best=0.3", forget)
    assert texts_of(rest) == sorted(row["text"] for row in ordered[10:94])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gs", "s3"])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_older_corpora_may_be_in_a_store(tmp_path, request, kind):
    """From there signatures, ids and the texts of candidates are read."""
    store = request.getfixturevalue(f"{kind}_store")
    texts = near_documents(300)
    flags = ["--near_duplicates=jaccard:0.8", "--bands=32x4"]
    old, local = build_chain(tmp_path, [texts[::2], texts[1::2]], *flags)
    assert local.stats.observed["near_duplicates"]["for_older"] > 8
    url = store.upload(old.directory, "old")
    source, flags = tmp_path / "1.jsonl", [f"--against={url}", "--num_files=3", *flags]
    assert sums_of(build(source, tmp_path / "delta", *flags)) == sums_of(local)
    build(source, store.url("delta"), *flags)
    assert sums_of(open_finished(Corpus, store.url("delta"))) == sums_of(local)
    verify.main([url, store.url("delta")])


@pytest.mark.slow
def test_a_killed_delta_is_built_again(tmp_path):
    """It is killed when the first partition was compared with the older corpus."""
    texts = near_documents(300)
    flags = ["--near_duplicates=jaccard:0.8", "--bands=32x4"]
    old, delta = build_chain(tmp_path, [texts[:200], texts[150:]], *flags)
    output = tmp_path / "killed"
    own = [f"--input={tmp_path / '1.jsonl'}", f"--output={output}", "--num_files=3"]
    own += [f"--against={old.directory}", *flags]
    process = subprocess.Popen([sys.executable, "-c", ONE_LIST, *own], cwd=ROOT)
    try:
        until = time.monotonic() + 120
        while not [*output.glob(".staging/**/*older_duplicates*")] and time.monotonic() < until:
            assert process.poll() is None
            time.sleep(0.02)
    finally:
        process.kill()
        process.wait()
    assert not (output / "MANIFEST.json").exists()
    assert sums_of(build(tmp_path / "1.jsonl", output, *own[2:])) == sums_of(delta)
    verify.main([old.directory, str(output)])


# Lists the older duplicates of one partition, and waits before the next for its end.
ONE_LIST = """
import sys, threading
from textmill.pipelines.build_corpus import main
from textmill.pipelines.corpus import partition_steps

list_known, turn = partition_steps.list_known, threading.Lock()
def list_one(*arguments):
    turn.acquire()
    return list_known(*arguments)

partition_steps.list_known = list_one
main(sys.argv[1:])
"""


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
