"""Shard sets without near-duplicates: what stays, what is counted, the same bytes on every way."""

import json
from collections import Counter

import numpy as np
import pytest

from pipelines.build_shards import main
from pipelines.corpus.near_duplicates import job
from pipelines.find_duplicates import main as find
from pipelines.rows.routing import Routes
from pipelines.verify import main as verify
from schemas.errors import UsageError
from schemas.sidecar import read_set
from tests.tools.near_factory import digest_of, near_documents, removals, similarity

DOCUMENTS = near_documents(400)
BANDS = "--bands=32x4"  # finds all pairs
NEAR = ["--near_duplicates=jaccard:0.8", BANDS]
SPLITS = "--splits=train:0.7,validation:0.3"


def write(path, documents):
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in documents))
    return path


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write(tmp_path_factory.mktemp("corpus") / "near.jsonl", DOCUMENTS)


def build(tokenizer_path, output, *flags):
    flags = [f"--tokenizer={tokenizer_path}", f"--output={output}", *flags]
    main([*flags, "--num_shards=3", "--max_length=64"])
    verify([str(output)])
    return read_set(str(output))


def shards(info):
    return {file.path: file.sha256 for file in info.manifest.files if file.split}


@pytest.fixture(scope="module")
def made(corpus, tokenizer_path, tmp_path_factory):
    output = tmp_path_factory.mktemp("made") / "set"
    return build(tokenizer_path, output, f"--input={corpus}", SPLITS, *NEAR)


def counted(documents, removed, is_trained, copies):
    """Documents kept, and dropped by reason, of train and of validation."""
    kept, dropped = Counter(), {True: Counter(), False: Counter()}
    for document in set(documents):
        split = is_trained(document)
        if document not in removed:
            kept[split] += 1
            dropped[split]["duplicates"] += copies[document] - 1
            continue
        crosses = split and not is_trained(removed[document][0])
        reason = "held_out_near" if crosses else "near_duplicates"
        dropped[split][reason] += copies[document]
    return kept, {
        split: {r: n for r, n in counts.items() if n} for split, counts in dropped.items()
    }


def test_what_stays_is_what_all_pairs_compared_leave(made):
    routes = Routes(made.schema.splits, made.schema.shards)
    names = routes.split_names()

    def is_trained(document):
        digest = np.frombuffer(digest_of(document), np.uint8).reshape(1, 16)
        return names[routes.of(digest)[0]] == "train"

    held_out = frozenset(d for d in DOCUMENTS if not is_trained(d))
    removed = removals(DOCUMENTS, held_out=held_out)
    kept, dropped = counted(DOCUMENTS, removed, is_trained, Counter(DOCUMENTS))
    splits = made.stats.splits()
    for name, split in (("train", True), ("validation", False)):
        assert splits[name].documents == kept[split]
        assert splits[name].dropped == dropped[split]
    assert dropped[True]["held_out_near"] > 5 and dropped[False]["near_duplicates"] > 2
    observed = made.stats.observed["near_duplicates"]
    assert observed["removed"] == len(removed) and observed["distinct"] == len(set(DOCUMENTS))
    assert made.schema.parameters["near_duplicates"] == "jaccard:0.8"


@pytest.mark.parametrize("way", ["files", "runner"])
def test_the_same_bytes_however_many_partitions(
    made, corpus, tokenizer_path, tmp_path, monkeypatch, way
):
    monkeypatch.setattr(job, "_PARTITION_BYTES", 20_000)
    monkeypatch.setattr(job, "_PARTITIONS_OF_ONE_PLACE", 4)  # of more, some decide in rounds
    flags = [f"--input={corpus}", SPLITS, *NEAR, f"--exchange={way}"]
    assert shards(build(tokenizer_path, tmp_path / "set", *flags)) == shards(made)


def test_a_finished_result_gives_what_it_says(corpus, tokenizer_path, tmp_path):
    found = tmp_path / "found"
    find([f"--input={corpus}", f"--output={found}", BANDS])
    flags = [f"--input={corpus}", SPLITS]
    near = f"--near_duplicates={found}"
    by_file = build(tokenizer_path, tmp_path / "set", *flags, near)
    removed = removals(DOCUMENTS)
    total = by_file.stats.total()
    assert total.documents == len(set(DOCUMENTS)) - len(removed)
    dropped = total.dropped["near_duplicates"] + total.dropped["held_out_near"]
    assert dropped == sum(Counter(DOCUMENTS)[document] for document in removed)
    by_runner = build(tokenizer_path, tmp_path / "other", *flags, near, "--exchange=runner")
    assert shards(by_runner) == shards(by_file)
    more = write(tmp_path / "more.jsonl", ["more"])
    for flag, said in (
        ("--normalize=nfkc", "normalize 'none', not 'nfkc'"),
        (f"--input={more}", "files of the input that were not searched"),
        (BANDS, "was found with flags of its own; leave it out"),
    ):
        with pytest.raises(UsageError, match=said):
            build(tokenizer_path, tmp_path / "refused", *flags, near, flag)
    given = [f"--train_input={corpus}", f"--validation_input={more}"]
    with pytest.raises(UsageError, match="was found without splits"):
        build(tokenizer_path, tmp_path / "refused", *given, near)


def test_given_evaluation_splits_lose_nothing_and_train_loses_what_is_near_them(
    tokenizer_path, tmp_path
):
    validation, train = DOCUMENTS[::2], DOCUMENTS[1::2] + DOCUMENTS[:3]
    flags = [
        f"--train_input={write(tmp_path / 'train.jsonl', train)}",
        f"--validation_input={write(tmp_path / 'validation.jsonl', validation)}",
    ]
    made = build(tokenizer_path, tmp_path / "set", *flags, *NEAR)
    splits = made.stats.splits()
    assert splits["validation"].documents == len(set(validation))
    assert not {"near_duplicates", "held_out_near"} & set(splits["validation"].dropped)
    given, copies = set(validation), Counter(train)
    near = {
        document
        for document in set(train) - given
        if any(similarity(document, other) >= 0.8 for other in given)
    }
    assert splits["train"].dropped["held_out"] == sum(copies[d] for d in given & set(train)) > 0
    assert splits["train"].dropped["held_out_near"] == sum(copies[d] for d in near) > 5
    # What is near no given document is removed for one of train.
    left = removals([document for document in train if document not in near | given])
    assert splits["train"].dropped["near_duplicates"] == sum(copies[d] for d in left) > 5


def test_documents_of_more_than_a_text_are_refused(corpus, tokenizer_path, tmp_path):
    with pytest.raises(UsageError, match="a document of --task=qa is more than one text"):
        build(tokenizer_path, tmp_path / "set", f"--input={corpus}", "--task=qa", *NEAR)


def test_sets_without_the_flag_say_nothing_of_it(corpus, tokenizer_path, tmp_path):
    made = build(tokenizer_path, tmp_path / "set", f"--input={corpus}", SPLITS)
    for name in ("schema.json", "stats.json", "config.yaml"):
        assert "near" not in (tmp_path / "set" / name).read_text().replace(str(corpus), "")
    assert made.stats.total().documents == len(set(DOCUMENTS))


def test_the_plan_shows_which_pairs_are_found(corpus, tokenizer_path, tmp_path, capsys):
    flags = [f"--input={corpus}", f"--tokenizer={tokenizer_path}", f"--output={tmp_path}/set"]
    main([*flags, "--near_duplicates=jaccard:0.75", "--bands=20x13", "--dry_run"])
    said = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "from a similarity of 0.75 on, of runs of 5 words" in said
    assert "by 20 bands of 13 hashes" in said and "inputs are read 3 times" in said
    assert not (tmp_path / "set").exists()
