"""The command prints the rows and the statistics of datasets worked by hand."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from xxhash import xxh3_128_hexdigest

from tests.tools.shard_factory import (
    BOS,
    EOS,
    MASK,
    PAD,
    mlm_schema,
    packed_rows,
    replace_file,
    routed_digests,
    tokenizer_json,
    write_mlm_set,
    write_set,
)
from textmill.pipelines import build_shards
from textmill.pipelines.inspect_shards import main
from textmill.pipelines.writers.token_counts import TOKEN_COUNTS, counts_bytes
from textmill.schemas.errors import UsageError
from textmill.schemas.files.finished import read_dataset
from textmill.schemas.format.features import unmask
from textmill.schemas.format.metadata import InputFile, Inputs
from textmill.schemas.typed_json import to_json


@pytest.fixture(scope="module")
def directory(tmp_path_factory) -> Path:
    """Shards of 2 and 2 rows; the third row is worked by hand."""
    schema = mlm_schema(max_length=12, max_masked=3, shards={"train": 2, "validation": 1})
    columns = {"train": packed_rows(schema, 4, 1), "validation": packed_rows(schema, 0, 2)}
    by_hand = {
        "input_ids": [BOS, 10, 11, MASK, 30, EOS, BOS, 20, 21, EOS, PAD, PAD],
        "segment_ids": [1] * 6 + [2] * 4 + [0] * 2,
        "masked_positions": [3, 4, 7],
        "masked_ids": [12, 13, 20],
        "masked_weights": [1, 1, 1],
    }
    for name, values in by_hand.items():
        columns["train"][name][2] = values
    directory = tmp_path_factory.mktemp("sets") / "set"
    write_set(directory, schema, columns)
    info = read_dataset(str(directory))
    stats = replace(
        info.stats,
        documents_read=info.stats.documents_read + 4,
        dropped={"not UTF-8": 3, "empty": 1},
        source_bytes=4_200_000,
    )
    replace_file(directory, "stats.json", to_json(stats.to_dict(12)))
    replace_file(directory, "inputs.json", to_json(Inputs((InputFile("a.txt", 5000, "ab"),))))
    return directory


@pytest.fixture(autouse=True)
def _wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")


def _lines(capsys, *argv: str) -> list[str]:
    main(list(argv))
    captured = capsys.readouterr()
    assert captured.err == ""
    return [line.rstrip() for line in captured.out.splitlines()]


def test_a_row_worked_by_hand(directory, capsys, monkeypatch):
    schema = read_dataset(str(directory)).schema
    one, two = (d.tobytes().hex() for d in routed_digests(schema, "train-00001-of-00002", 2))
    lines = _lines(capsys, str(directory), "--split=train", "--row=2")
    start = lines.index("train row 2 (row 0 of train-00001-of-00002.tfrecord)")
    assert lines[start:] == [
        "train row 2 (row 0 of train-00001-of-00002.tfrecord)",
        "12 positions: 10 tokens in 2 segments, 2 padding; 3 masked (1 mask token, 1 random token, "
        "1 kept)",
        "",
        "[1] <s> w10 w11 {w12→<mask>} {w13→w30}</s>",
        "[2] <s> {w20=} w21</s>",
        "[-] 2 x padding",
        "",
        "{was→now} is a masked token, {was=} a masked token that was kept:",
        " position  segment  was     became    how",
        "        3        1  ' w12'  '<mask>'  mask",
        "        4        1  ' w13'  ' w30'    random",
        "        7        2  ' w20'  ' w20'    kept",
        "",
        " segment  document                          from token",
        f"       1  {one}           0",
        f"       2  {two}           0",
    ]
    assert "train row 0 (row 0 of train-00000-of-00002.tfrecord)" in _lines(capsys, str(directory))
    monkeypatch.setenv("FORCE_COLOR", "1")
    text = "\n".join(_lines(capsys, str(directory), "--row=2"))
    assert "\x1b[1;31m{w12→<mask>}\x1b[0m" in text  # red
    assert "\x1b[1;35m{w13→w30}\x1b[0m" in text  # magenta


def test_stats_are_tables(directory, capsys):
    lines = _lines(capsys, str(directory), "--stats")
    text = "\n".join(lines)
    assert lines[0] == str(directory)
    assert " task              mlm, rows of 12 tokens" in lines
    assert " vocabulary        50 ids; bos 0, eos 2, mask 4, pad 1, unk 3" in lines
    assert " masking           static, 0.25 of the tokens, at most 3 a row, 1 copy" in lines
    assert " inputs            1 file, 5.0 kB" in lines
    assert " segment_ids       uint8[12]: 0 is padding, 1..n" in text
    assert read_dataset(str(directory)).schema.fingerprint in text
    assert " rejected    1 empty, 3 not UTF-8" in lines
    total = read_dataset(str(directory)).stats.total()
    words = [line.split() for line in lines]
    splits = words.index(["splits"])
    assert words[splits + 1] == ["train", "validation", "all"]
    assert words[splits + 2] == ["shards", "2", "1", "3"]
    assert ["rows", "4", "0", "4"] in words
    density = f"{total.packing_efficiency(12):.2%}"
    assert ["packing", "efficiency", density, "0.00%", density] in words
    bars = lines[lines.index("tokens of a document") + 1 :]
    bars = bars[: bars.index("")]
    assert sum(int(line.split()[1]) for line in bars) == total.documents
    assert max(line.count("█") for line in bars) == 40
    assert "row 0" not in text


def test_a_set_without_masks_or_documents(tmp_path, capsys):
    write_mlm_set(tmp_path / "set", train=0, validation=0, static_masking=False)
    lines = _lines(capsys, str(tmp_path / "set"), "--stats")
    assert " masking      none; rows are unmasked" in lines
    with pytest.raises(UsageError, match="--row=0: split train of .* has no rows"):
        main([str(tmp_path / "set")])


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--row=4"], "--row=4: split train of .* has rows 0 to 3"),
        (["--row=-1"], "--row=-1: split train of .* has rows 0 to 3"),
        (["--split=test"], "--split=test: .* has no such split; it has train, validation"),
        (["--split=validation"], "--row=0: split validation of .* has no rows"),
        (["--search="], "--search: give a text to look for"),
        (["--search=a", "--stats"], "--stats, --search: give one of them"),
        (["--stats", "--row=0"], "--row, --stats: give one of them"),
        (["--stats", "--split=train"], "--split=train: --stats counts all splits"),
        (["--search=a", "--limit=-1"], "--limit=-1: 0 or more"),
        (["--search=a", "--split=dev"], "--split=dev: .* has no such split"),
    ],
)
def test_rows_and_searches_that_cannot_be_shown_are_refused(directory, flags, message):
    with pytest.raises(UsageError, match=message):
        main([str(directory), *flags])


# Searching


def _exit(capsys, *argv: str) -> tuple[int, list[str]]:
    code = 0
    try:
        main(list(argv))
    except SystemExit as left:
        code = left.code
    captured = capsys.readouterr()
    assert captured.err == "" and isinstance(code, int)
    return code, [line.rstrip() for line in captured.out.splitlines()]


def test_search_takes_masks_off_and_stays_in_a_segment(directory, capsys):
    # Row 2 holds w10 w11 w12 w13 and w20 w21, of which w12, w13 and w20 are masked.
    code, lines = _exit(capsys, str(directory), "--search=w11 w12 w13")
    assert (code, lines) == (
        0,
        ["train 2 [1] <s> w10 w11 w12 w13</s>", "1 of 4 rows, 1 time"],
    )
    assert _exit(capsys, str(directory), "--search=</s><s>") == (1, ["0 of 4 rows, 0 times"])
    assert _exit(capsys, str(directory), "--search=<mask>")[0] == 1
    code, lines = _exit(capsys, str(directory), "--search=w21</s>")
    assert lines[0] == "train 2 [2] <s> w20 w21</s>"


@pytest.mark.parametrize("changes", [{}, {"encoding": "int64_list"}, {"static_masking": False}])
def test_search_finds_every_row_of_every_shard(tmp_path, capsys, changes):
    columns = write_mlm_set(tmp_path / "set", train=30, validation=5, **changes)
    due = []
    for split in ("train", "validation"):
        ids = unmask(columns[split])
        for row in range(len(ids)):
            times = int((ids[row] == 7).sum())
            if times:
                due.append((split, row, times))
    # "w7" is in no other token, since there are none above w49.
    code, lines = _exit(capsys, str(tmp_path / "set"), "--search= w7", "--limit=0")
    found = []
    for line in lines[:-1]:
        split, row = line.split()[:2]
        times = int(line.rsplit("(", 1)[1].split()[0]) if line.endswith("times)") else 1
        found.append((split, int(row), times))
    assert (code, found) == (0, due)
    assert lines[-1] == f"{len(due)} of 35 rows, {sum(times for *_, times in due)} times"
    code, lines = _exit(capsys, str(tmp_path / "set"), "--search=<s>", "--limit=2")
    assert code == 0 and len(lines) == 3
    assert [line.split(" [")[0] for line in lines[:2]] == ["train 0", "train 1"]
    assert lines[2] == "more rows match; --limit=0 shows all"
    code, lines = _exit(capsys, str(tmp_path / "set"), "--search=<s>", "--split=validation")
    assert len(lines) == 6 and lines[5].startswith("5 of 5 rows")


# Counting


def test_stats_lists_tokens_by_their_counts(tmp_path, capsys):
    write_mlm_set(tmp_path / "set")
    counts = np.zeros(50, np.int64)
    counts[[5, 30]] = 10
    content = counts_bytes(counts)
    replace_file(tmp_path / "set", TOKEN_COUNTS, content)
    words = [line.split() for line in _lines(capsys, str(tmp_path / "set"), "--stats")]
    assert ["2", "of", "50", "ids", "occur,", "0", "once"] in words
    assert ["5", "'", "w5'", "10", "█" * 40] in words


# Rows of other tasks


def test_a_row_of_clm_says_where_the_loss_counts(tmp_path, capsys, monkeypatch):
    tokenizer = tmp_path / "tokenizer.json"
    tokenizer.write_bytes(tokenizer_json(50))
    (tmp_path / "a.txt").write_text("w10 w11 w12\n")
    flags = [f"--tokenizer={tokenizer}", f"--output={tmp_path / 'set'}", "--splits=train:1"]
    build_shards.main([f"--input={tmp_path}/a.txt", *flags, "--task=clm", "--max_length=6"])
    capsys.readouterr()
    lines = _lines(capsys, str(tmp_path / "set"))
    start = next(n for n, line in enumerate(lines) if line.startswith("train row 0"))
    digest = xxh3_128_hexdigest((tmp_path / "a.txt").read_bytes())
    assert lines[start + 1 :] == [
        "6 positions: 4 tokens in 1 segment, 2 padding",
        "loss_weights: 3, underline",
        "",
        "[1]  w10 w11 w12</s>",
        "[-] 2 x padding",
        "",
        " segment  document                          from token",
        f"       1  {digest}           0",
    ]
