"""Near-duplicates of older corpora: what all pairs give if old documents stay."""

import random
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.pipelines.corpus.test_ancestors import build_chain, shards_of
from tests.tools.corpus_factory import build, sums_of, texts_of, write_lines
from tests.tools.near_duplicates import digest_of, near_documents, removals
from textmill.pipelines import verify
from textmill.pipelines.corpus.ancestors import read_ids
from textmill.pipelines.corpus.near_duplicates.buckets import find_pairs
from textmill.pipelines.corpus.near_duplicates.flags import Bands
from textmill.pipelines.corpus.near_duplicates.rows import MEMBER, OLDER, places
from textmill.schemas.errors import DataError

# A pair of similarity 0.8 meets in 32 bands of 4 hashes with a probability of 0.99999994.
RULE = ["--near_duplicates=jaccard:0.8", "--bands=32x4"]
WORDS = [f"w{n}" for n in range(40)]


def changed(text, *numbers):
    """The text without some of its words, from the end."""
    words = text.split()
    return " ".join(word for n, word in enumerate(words) if n - len(words) not in numbers)


def removed_of(corpus):
    """Id to representative and similarity of removed near-duplicates."""
    names = corpus.schema.removed_names()
    rows = [row for n in names for row in pq.read_table(f"{corpus.directory}/{n}").to_pylist()]
    return {row["id"]: (row["representative"], row["similarity"]) for row in rows}


def ids_of(corpus):
    content = b"".join(read_ids(corpus.path(f), f.rows).tobytes() for f in corpus.documents)
    return [content[start : start + 16].hex() for start in range(0, len(content), 16)]


def named(removals):
    return {
        digest_of(one).hex(): (digest_of(other).hex(), similarity)
        for one, (other, similarity) in removals.items()
    }


def test_old_documents_stay_though_shorter_and_there_are_no_chains(tmp_path):
    """By hand: 36 shingles of 40 words, one more for each word; a cut of n words leaves 36 - n."""
    long = " ".join([*WORDS, "more", "and", "more"])  # of 39 shingles
    old = " ".join(WORDS)  # 36 / 39 to the longer one
    shorter = " ".join(WORDS[:-5])  # 31 / 36 to old, 31 / 39 to long: below 0.8
    shortest = " ".join(WORDS[:-9])  # 27 / 36 to old, 27 / 31 to shorter
    chain = build_chain(tmp_path, [[old], [long, shorter, "new"], [shortest, "newest"]], *RULE)
    assert [texts_of(corpus) for corpus in chain] == [[old], ["new"], sorted(["newest", shortest])]
    due = {long: (old, 36 / 39), shorter: (old, 31 / 36)}
    assert removed_of(chain[1]) == named(due)
    counts = chain[1].stats.observed["near_duplicates"]
    del counts["refuted"]
    assert counts == {"compared": 3, "verified": 2, "removed": 2, "for_older": 2}
    verify.main([corpus.directory for corpus in chain])


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    "flags",
    [
        ["--shuffle_by=files"],
        ["--shuffle_by=runner", "--direct_runner_bundle_repeat=1", "--file_format=jsonl"],
    ],
    ids=" ".join,
)
def test_a_chain_gives_what_all_pairs_give(tmp_path, seed, flags):
    documents = near_documents(450)
    random.Random(seed).shuffle(documents)
    snapshots = [documents[:200], documents[180:330], documents[320:]]
    chain = build_chain(tmp_path, snapshots, *RULE, *flags)
    older = []
    for corpus, snapshot in zip(chain, snapshots, strict=True):
        due = removals(snapshot, older=older)
        assert removed_of(corpus) == named(due)
        kept = {*snapshot} - {*older} - {*due}
        assert ids_of(corpus) == sorted(digest_of(one).hex() for one in kept)
        counts = corpus.stats.observed["near_duplicates"]
        of_older = [one for one in due.values() if one[0] in older]
        assert counts.get("for_older", 0) == len(of_older)
        older += kept
    assert len(of_older) > 20
    verify.main([corpus.directory for corpus in chain])


def test_shards_of_the_union_are_those_of_one_build(tmp_path):
    """Later documents are shorter, so one build also keeps the old ones."""
    draw = random.Random(0)
    texts = [" ".join(draw.choices(WORDS, k=60)) for _ in range(60)]
    later = [[*texts[20 * n : 20 * n + 20]] for n in range(3)]
    later[1] += [changed(text, -1) for text in later[0][:8]] + later[0][8:10]
    later[2] += [changed(text, -1, -2) for text in later[0][4:12] + later[1][:3]]
    chain = build_chain(tmp_path, later, *RULE)
    assert [corpus.stats.dropped.get("near_duplicates", 0) for corpus in chain] == [0, 8, 11]
    source = write_lines(tmp_path / "whole.jsonl", sum(later, []))
    whole = build(source, tmp_path / "whole", "--num_files=5", *RULE)
    assert texts_of(whole) == sorted(sum(map(texts_of, chain), []))
    shards = shards_of([whole], tmp_path / "shards")
    assert shards_of(chain, tmp_path / "shards_of_chain") == shards


def test_signatures_are_those_of_the_kept_texts(tmp_path, capsys):
    """An old corpus has the same signatures as a corpus of its texts, and none without the flag."""
    documents = near_documents(300)
    flags = [*RULE, "--num_files=3"]
    source = write_lines(tmp_path / "source.jsonl", documents)
    corpus = build(source, tmp_path / "corpus", *flags)
    copy = build(tmp_path / "corpus", tmp_path / "copy", *flags)
    names = corpus.schema.signature_names()
    assert names[0] == "signatures/documents-00000-of-00003.npy"
    sums = sums_of(corpus)
    assert [sums_of(copy)[name] for name in names] == [sums[name] for name in names]
    rows = np.load(tmp_path / "corpus" / names[0])
    assert rows.dtype.itemsize == 40 + 8 * 32
    assert len(rows) == corpus.documents[0].rows
    edited = build(source, tmp_path / "edited", *flags, "--duplicate_paragraphs=line:50")
    assert {name: sums_of(edited)[name] for name in names} == {name: sums[name] for name in names}

    plain = build(tmp_path / "corpus", tmp_path / "plain", "--num_files=3")
    assert plain.schema.signature_names() == []
    more = write_lines(tmp_path / "more.jsonl", [changed(text, -1) for text in documents])
    delta = build(more, tmp_path / "delta", *flags, f"--against={corpus.directory}")
    assert "no signatures" not in capsys.readouterr().out
    again = build(more, tmp_path / "again", *flags, f"--against={plain.directory}")
    assert "plain has no signatures of --shingle=word:5 and --bands=32x4" in capsys.readouterr().out
    assert removed_of(delta) == removed_of(again) and len(removed_of(delta)) > 50
    kept = [file.sha256 for file in delta.documents]
    assert [file.sha256 for file in again.documents] == kept


@pytest.mark.parametrize("damage", ["cut", "rows"])
def test_damaged_signatures_are_refused(tmp_path, damage):
    corpus = build_chain(tmp_path, [near_documents(30)], *RULE)[0]
    path = Path(corpus.directory, corpus.schema.signature_names()[0])
    rows = np.load(path)
    if damage == "cut":
        path.write_bytes(b"\0" * path.stat().st_size)
    else:
        rows["row"] += 1000
        np.save(path, rows)
    source = write_lines(tmp_path / "new.jsonl", near_documents(10))
    with pytest.raises(DataError, match="cannot be read|has other rows"):
        build(source, tmp_path / "new", *RULE, f"--against={corpus.directory}")


def test_old_documents_are_never_paired_and_fill_large_buckets_first():
    """70 old documents and 100 new ones in a bucket, and a bucket of old ones only."""
    members = np.zeros(180, MEMBER)
    members["key"][:170], members["key"][170:] = 1 << 8, 2 << 8
    members["place"][:70] = places(OLDER, np.arange(70))
    members["place"][70:170] = places(0, np.arange(100))
    members["place"][170:] = places(OLDER, np.arange(100, 110))
    members["length"] = np.arange(180)
    draw = np.random.default_rng(0)
    members["sketch"] = draw.integers(0, 1 << 63, 4, np.uint64)  # all alike
    members = members[draw.permutation(180)]
    parts = list(find_pairs(members, Bands(14, 8), Fraction(4, 5)))
    pairs = np.concatenate([some for some, _ in parts])
    assert (pairs["lower"] < 1 << 32).all()
    higher, counts = np.unique(pairs["higher"], return_counts=True)
    # The four longest old documents are the anchors: others are alike.
    assert higher.tolist() == places(OLDER, np.arange(66, 70)).tolist()
    assert counts.tolist() == [100] * 4 and sum(count for _, count in parts) == 0
