"""A run's settings: what was damaged is never taken for them."""

import os

import pytest

from textmill.schemas.errors import DataError, UsageError
from textmill.schemas.format.run_settings import CONFIG_JSON
from textmill.trainers.run.run_directory import (
    claim,
    read_settings,
    start_or_resume,
    write_settings,
)

RUN = {
    "trainer": "tf_qa",
    "config": {"steps": 5, "output": None},
    "model": {"heads": 2},
    "fingerprint": "abc",
}


def test_settings_go_out_and_in_by_one_trainer(tmp_path):
    """Two of them may have models of one form, and cut each other's metrics.jsonl."""
    write_settings(tmp_path, RUN)
    assert read_settings(tmp_path, "tf_qa") == RUN
    with pytest.raises(UsageError, match="holds no run: it has no config.json"):
        read_settings(tmp_path / "none", "tf_qa")
    message = "a run of trainers.tf_qa, not of trainers.poptorch_classifier: use that one, or"
    with pytest.raises(UsageError, match=message):
        read_settings(tmp_path, "poptorch_classifier")
    others = {**RUN, "trainer": "poptorch_classifier"}
    with pytest.raises(UsageError, match=message):
        start_or_resume(tmp_path, others, resume=True, same=())


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda path: os.mkfifo(path), "is not a regular file but a pipe or a device"),
        (lambda path: path.symlink_to("/dev/zero"), "is a link out of its directory"),
        (lambda path: path.mkdir(), "Is a directory"),
        (lambda path: path.write_text("null"), "is None, not of type dict"),
        (lambda path: path.write_text("{}"), "missing fields"),
        (lambda path: path.write_text('{"a": 1, "a": 1}'), "the key 'a' occurs twice"),
        (lambda path: (path.touch(), os.truncate(path, 3 << 30)), "ends in NUL bytes"),
    ],
)
@pytest.mark.timeout(20)
def test_odd_settings_are_refused_at_once(tmp_path, damage, said):
    damage(tmp_path / CONFIG_JSON)
    with pytest.raises(DataError, match=f"config.json is not a trainer's configuration.*{said}"):
        read_settings(tmp_path)
    for name, value in {"trainer": 5, "config": [], "model": None, "fingerprint": 1.5}.items():
        (tmp_path / name).mkdir()
        write_settings(tmp_path / name, {**RUN, name: value})
        with pytest.raises(DataError, match=f"{CONFIG_JSON}: {name} is "):
            read_settings(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("MANIFEST.json", "holds MANIFEST.json, so it is a dataset or a tokenizer"),
        ("tokenizer.json", "holds tokenizer.json, so it is a dataset or a tokenizer"),
        ("checkpoints", "holds checkpoints but no config.json: give another --output"),
    ],
)
def test_what_is_no_run_is_not_replaced(tmp_path, name, said):
    (tmp_path / name).touch()
    for resume in (False, True):
        with pytest.raises(UsageError, match=said):
            start_or_resume(tmp_path, RUN, resume=resume, same=())
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_another_run_is_not_gone_on_with(tmp_path):
    """Settings that must agree are named with both values; each that may differ has a line."""
    assert start_or_resume(tmp_path, RUN, resume=False, same=()) == []
    newer = {**RUN, "config": {**RUN["config"], "flag_of_a_newer_version": (1, 2)}}
    for _ in range(2):  # the second time it is a list of JSON, and the same
        assert start_or_resume(tmp_path, newer, resume=True, same=(*newer["config"],)) == []
    write_settings(tmp_path, RUN)
    assert start_or_resume(tmp_path, RUN, resume=True, same=("steps",)) == []
    with pytest.raises(UsageError, match="holds a run already: add --resume to continue it, or"):
        start_or_resume(tmp_path, RUN, resume=False, same=())
    others = {
        **RUN,
        "config": {"steps": 6, "output": "there", "epochs": (1, 2)},
        "model": {"heads": 4},
        "fingerprint": "abd",
    }
    with pytest.raises(UsageError) as refused:
        start_or_resume(tmp_path, others, resume=True, same=("steps",))
    assert str(refused.value) == (
        f"{tmp_path} cannot be resumed with these settings: heads was 2, is 4; shards' fingerprint "
        "was 'abc', is 'abd'; steps was 5, is 6. Give the dataset and settings it began with, or "
        "another --output"
    )
    assert read_settings(tmp_path, "tf_qa") == RUN
    others = {**RUN, "config": {"steps": 6, "output": "there"}}
    changes = start_or_resume(tmp_path, others, resume=True, same=())
    assert changes == ["steps was 5, is 6"]
    assert read_settings(tmp_path, "tf_qa") == others


def test_one_run_at_a_time(tmp_path):
    with claim(tmp_path / "run"):
        message = f"^another run writes into {tmp_path}/run: wait for it, or use another --output"
        with pytest.raises(UsageError, match=message), claim(tmp_path / "run"):
            raise AssertionError("two runs in one directory")
    message = f"^{tmp_path}/run: .*No such file.*none'. Finished checkpoints are kept; repair the c"
    with pytest.raises(DataError, match=message), claim(tmp_path / "run"):
        (tmp_path / "none").read_bytes()
    with pytest.raises(BrokenPipeError), claim(tmp_path / "run"):
        raise BrokenPipeError
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=f"--output={tmp_path}/file is a file, or below a file"):
        claim(tmp_path / "file").__enter__()


def test_no_flipped_bit_gives_other_settings(tmp_path):
    write_settings(tmp_path, RUN)
    path = tmp_path / CONFIG_JSON
    content, refused = path.read_bytes(), 0
    for place in range(len(content)):
        for bit in range(8):
            changed = bytearray(content)
            changed[place] ^= 1 << bit
            path.write_bytes(changed)
            try:
                found = read_settings(tmp_path, "tf_qa")
            except DataError as error:
                assert "copy it from a backup" in str(error)
                refused += 1
            else:  # white space
                assert found == RUN
    assert refused > 6 * len(content)


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"fingerprint": 5}', b"[" * 100_000])
def test_what_is_no_configuration_is_refused(tmp_path, content):
    (tmp_path / CONFIG_JSON).write_bytes(content)
    with pytest.raises(DataError, match="is not a trainer's configuration|has changed since"):
        read_settings(tmp_path, "tf_qa")
