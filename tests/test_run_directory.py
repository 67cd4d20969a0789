"""A run's settings: what was damaged is never taken for them."""

import json

import pytest

from schemas.errors import DataError, UsageError
from trainers.run.run_directory import (
    SETTINGS,
    errors_in_words,
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


def test_settings_go_out_and_in(tmp_path):
    write_settings(tmp_path, RUN)
    assert read_settings(tmp_path, "tf_qa") == RUN
    (tmp_path / SETTINGS).write_text(json.dumps(RUN))  # as older versions wrote them
    assert read_settings(tmp_path, "tf_qa") == RUN
    with pytest.raises(UsageError, match="holds no run: it has no config.json"):
        read_settings(tmp_path / "none", "tf_qa")


def test_a_run_is_of_one_trainer(tmp_path):
    """Two of them may have models of one form, and cut each other's metrics.jsonl."""
    write_settings(tmp_path, RUN)
    message = "a run of trainers.tf_qa, not of trainers.poptorch_classifier: use that one, or"
    with pytest.raises(UsageError, match=message):
        read_settings(tmp_path, "poptorch_classifier")
    others = {**RUN, "trainer": "poptorch_classifier"}
    with pytest.raises(UsageError, match=message):
        start_or_resume(tmp_path, others, resume=True, same=())
    older = {name: part for name, part in RUN.items() if name != "trainer"}
    (tmp_path / SETTINGS).write_text(json.dumps(older))
    assert read_settings(tmp_path, "poptorch_classifier") == older


def test_no_flipped_bit_gives_other_settings(tmp_path):
    write_settings(tmp_path, RUN)
    path = tmp_path / SETTINGS
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
            else:  # white space, or the name of the digest
                assert {name: found[name] for name in RUN} == RUN
    assert refused > 6 * len(content)


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"fingerprint": 5}', b"[" * 100_000])
def test_what_is_no_configuration_is_refused(tmp_path, content):
    (tmp_path / SETTINGS).write_bytes(content)
    with pytest.raises(DataError, match="is not a trainer's configuration|was changed since"):
        read_settings(tmp_path, "tf_qa")


def test_errors_of_files_name_place_and_remedy(tmp_path):
    with (
        pytest.raises(DataError, match=f"^{tmp_path}: .*No such file.*none'. Do this$"),
        errors_in_words(tmp_path, "Do this"),
    ):
        (tmp_path / "none").read_bytes()
    with pytest.raises(BrokenPipeError), errors_in_words(tmp_path, "Do this"):
        raise BrokenPipeError
