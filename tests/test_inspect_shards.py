"""What the command prints, of sets worked by hand."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from shard_factory import (
    BOS,
    EOS,
    MASK,
    PAD,
    mlm_schema,
    packed_rows,
    replace_file,
    write_mlm_set,
    write_set,
)

from pipelines.inspect_shards import main
from schemas.errors import UsageError
from schemas.sidecar import InputFile, Inputs, read_set, to_json

ROOT = Path(__file__).parents[1]


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
    info = read_set(str(directory))
    stats = replace(
        info.stats, documents_rejected={"not UTF-8": 3, "empty": 1}, source_bytes=4_200_000
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


def test_a_row_worked_by_hand(directory, capsys):
    lines = _lines(capsys, str(directory), "--split=train", "--row=2")
    start = lines.index("train row 2, which is row 0 of train-00001-of-00002.tfrecord")
    assert lines[start:] == [
        "train row 2, which is row 0 of train-00001-of-00002.tfrecord",
        "12 places: 10 tokens in 2 segments, 2 padding; 3 masked (1 by the mask token, 1 by a "
        "random one, 1",
        "kept)",
        "",
        "[1] <s> w10 w11 {w12→<mask>} {w13→w30}</s>",
        "[2] <s> {w20=} w21</s>",
        "[-] 2 x padding",
        "",
        "{was→now} is a masked token, {was=} one that was kept:",
        " place  segment  was     became    how",
        "     3        1  ' w12'  '<mask>'  mask",
        "     4        1  ' w13'  ' w30'    random",
        "     7        2  ' w20'  ' w20'    kept",
    ]


def test_the_first_row_of_the_first_split_that_has_any(directory, capsys):
    lines = _lines(capsys, str(directory))
    assert "train row 0, which is row 0 of train-00000-of-00002.tfrecord" in lines


def test_tables(directory, capsys):
    lines = _lines(capsys, str(directory), "--stats")
    text = "\n".join(lines)
    assert lines[0] == str(directory)
    assert " task              mlm, rows of 12 tokens" in lines
    assert " vocabulary        50 ids; bos 0, eos 2, mask 4, pad 1, unk 3" in lines
    assert " masking           static, 0.15 of the tokens, at most 3 a row, 1 copy" in lines
    assert " inputs            1 file, 5.0 kB" in lines
    assert " segment_ids       uint8[12]: 0 is padding, 1..n" in text
    assert read_set(str(directory)).schema.fingerprint in text
    assert " rejected: empty      1" in lines
    assert " rejected: not UTF-8  3" in lines
    total = read_set(str(directory)).stats.total()
    words = [line.split() for line in lines]
    splits = words.index(["splits"])
    assert words[splits + 1] == ["train", "validation", "all"]
    assert words[splits + 2] == ["shards", "2", "1", "3"]
    assert ["rows", "4", "0", "4"] in words
    density = f"{total.density(12):.2%}"
    assert ["density", density, "0.00%", density] in words
    bars = lines[lines.index("tokens of a document") + 1 :]
    assert sum(int(line.split()[1]) for line in bars) == total.documents
    assert max(line.count("█") for line in bars) == 40
    assert "row 0" not in text


def test_a_set_without_masks_or_documents(tmp_path, capsys):
    write_mlm_set(tmp_path / "set", train=0, validation=0, static_masking=False)
    lines = _lines(capsys, str(tmp_path / "set"), "--stats")
    assert " masking      none; rows are as they were" in lines
    with pytest.raises(UsageError, match="--row=0: split train of .* has no rows"):
        main([str(tmp_path / "set")])


@pytest.mark.parametrize("changes", [{"static_masking": False}, {"encoding": "int64_list"}])
def test_rows_of_other_layouts(tmp_path, capsys, changes):
    columns = write_mlm_set(tmp_path / "set", file_formats=("array_record",), **changes)
    lines = _lines(capsys, str(tmp_path / "set"), "--split=validation", "--row=9")
    assert "validation row 9, which is row 9 of validation-00000-of-00001.array_record" in lines
    segments = int(columns["validation"]["segment_ids"][9].max())
    assert sum(line.startswith(f"[{n}] <s>") for line in lines for n in range(9)) == segments


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--row=4"], "--row=4: split train of .* has rows 0 to 3"),
        (["--row=-1"], "--row=-1: split train of .* has rows 0 to 3"),
        (["--split=test"], "--split=test: .* has no such split, only train, validation"),
        (["--split=validation"], "--row=0: split validation of .* has no rows"),
    ],
)
def test_what_is_not_there_is_refused(directory, flags, message):
    with pytest.raises(UsageError, match=message):
        main([str(directory), *flags])


def _run(*argv: str, **environment: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "pipelines.inspect_shards", *argv]
    return subprocess.run(
        command,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )


def test_command_in_a_process_of_its_own(directory, tmp_path):
    done = _run(str(directory), "--row=2", FORCE_COLOR="1")
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b[1;31m{w12→<mask>}\x1b[0m" in done.stdout  # red
    assert "\x1b[1;35m{w13→w30}\x1b[0m" in done.stdout  # magenta
    done = _run(str(directory), "--rows=2")
    assert done.returncode == 2
    done = _run(str(tmp_path))
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: {tmp_path} is not a finished shard set")


def test_row_lists_are_right_for_many_shards(tmp_path, capsys):
    columns = write_mlm_set(tmp_path / "set", train=7, shards={"train": 5, "validation": 1})
    for row in range(7):
        first = int(np.flatnonzero(columns["train"]["masked_weights"][row])[0])
        lines = _lines(capsys, str(tmp_path / "set"), f"--row={row}")
        was = columns["train"]["masked_ids"][row, first]
        (header,) = (n for n, line in enumerate(lines) if line.startswith(" place  segment"))
        assert lines[header + 1].split("'")[1] == f" w{was}"
