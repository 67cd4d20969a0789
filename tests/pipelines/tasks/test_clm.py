"""Causal language modelling: every token is there once, and predicted wherever it can be."""

import json
import pathlib

import numpy as np
import pytest

from pipelines.build.options import parse_options
from pipelines.build_shards import main
from pipelines.encoding.tokenizer import load_tokenizer
from pipelines.verify import main as verify
from schemas.errors import UsageError
from schemas.metadata import read_set
from schemas.records import open_rows


def build(corpus, tokenizer_path, output, *more):
    main(
        [
            "--task=clm",
            f"--input={corpus}",
            f"--tokenizer={tokenizer_path}",
            f"--output={output}",
            "--max_length=64",
            *more,
        ]
    )
    verify([str(output)])
    return read_set(str(output))


@pytest.mark.parametrize(
    ("task", "max_length"), [("clm", 1024), ("chat", 1024), ("mlm", 128), ("qa", 128)]
)
def test_the_default_length_of_rows_is_that_of_the_task(task, max_length):
    flags = [f"--task={task}", "--input=a.txt", "--tokenizer=t", "--output=o"]
    assert parse_options(flags)[0].max_length == max_length
    for length in ("--max_length=64", "--max-length=64"):
        assert parse_options([*flags, length])[0].max_length == 64


def columns(made):
    codec = made.schema.codec()
    for file in made.manifest.files:
        if file.split:
            rows = open_rows(f"{made.directory}/{file.path}", codec.stride)
            yield codec.decode(rows.read_range(0, len(rows)))


def segments(made):
    """(ids, loss weights) of every segment."""
    for shard in columns(made):
        for row in range(len(shard["input_ids"])):
            for segment in range(1, shard["segment_ids"][row].max() + 1):
                places = shard["segment_ids"][row] == segment
                yield (
                    shard["input_ids"][row][places].tolist(),
                    shard["loss_weights"][row][places].tolist(),
                )


@pytest.mark.parametrize("packing", ["best_fit", "none"])
def test_documents_come_back_whole_with_their_ends(
    corpus, topics, tokenizer_path, tmp_path, packing
):
    made = build(corpus, tokenizer_path, tmp_path / "set", f"--packing={packing}", "--bos")
    tokenizer = load_tokenizer(tokenizer_path)
    found = list(segments(made))
    assert all(weights == [0] + [1] * (len(ids) - 1) for ids, weights in found)
    starts = sum(ids[0] == 0 for ids, _ in found)
    ends = sum(ids[-1] == 2 for ids, _ in found)
    kept = set(filter(None, topics))
    assert starts == ends == len(kept) == made.stats.total().documents
    short = {tokenizer.decode(ids[1:-1]) for ids, _ in found if ids[0] == 0 and ids[-1] == 2}
    assert short <= kept and len(short) > 100
    total = made.stats.total()
    assert total.specials_added == 2 * len(kept)
    assert sum(len(ids) for ids, _ in found) == total.tokens + total.specials_added
    # What bits per byte and perplexity per word are of.
    assert total.text_bytes == sum(len(document.encode()) for document in kept)
    assert total.words == sum(len(document.split()) for document in kept)


def test_the_classic_stream_fills_all_rows_but_the_last(corpus, tokenizer_path, tmp_path):
    made = build(corpus, tokenizer_path, tmp_path / "set", "--packing=concat", "--num_shards=1")
    for shard in columns(made):
        used = np.count_nonzero(shard["segment_ids"], axis=1)
        assert np.count_nonzero(used < 64) <= 1
        same = shard["segment_ids"][:, 1:] == shard["segment_ids"][:, :-1]
        inside = shard["segment_ids"][:, 1:] > 0
        assert (shard["loss_weights"][:, 1:] == (same & inside)).all()
        assert not shard["loss_weights"][:, 0].any()


def test_without_specials_nothing_is_added(corpus, tokenizer_path, tmp_path):
    made = build(corpus, tokenizer_path, tmp_path / "set", "--no_eos")
    total = made.stats.total()
    assert total.specials_added == 0 and total.tokens == total.tokens_in_rows


def test_a_tokenizer_without_the_specials_is_refused(corpus, tokenizer_path, tmp_path):
    config = json.loads(pathlib.Path(tokenizer_path).read_text())
    config["added_tokens"] = []
    config["post_processor"] = None
    for special in ("<s>", "</s>"):
        config["model"]["vocab"][special + "-"] = config["model"]["vocab"].pop(special)
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(config))
    for flags, role in (((), "eos"), (("--bos", "--no_eos"), "bos")):
        with pytest.raises(UsageError, match=f"no {role} token: use --no_{role}"):
            build(corpus, path, tmp_path / "set", *flags)
    build(corpus, path, tmp_path / "set", "--no_eos")


def test_a_flag_of_another_task_is_said_to_be_one(corpus, tokenizer_path, tmp_path):
    with pytest.raises(UsageError, match="--mask_rate is a flag of --task=mlm, not of clm"):
        build(corpus, tokenizer_path, tmp_path / "set", "--mask_rate=0.3")
    with pytest.raises(UsageError, match="--task=translation: choose one of "):
        main(["--task=translation", f"--input={corpus}", "--tokenizer=x", "--output=y"])
