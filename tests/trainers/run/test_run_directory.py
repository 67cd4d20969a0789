"""A run's settings: what was damaged is never taken for them."""

import json

import pytest

from schemas.errors import DataError, UsageError
from trainers.run.run_directory import (
    SETTINGS,
    claimed,
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
        start_or_resume(tmp_path, others, resume=True, same=(), defaults={})


@pytest.mark.parametrize("form", [None, 1, 3, "2"])
def test_a_run_that_another_version_began_is_refused_in_words(tmp_path, form):
    """Its checkpoints have another form; version 1 wrote no number."""
    path = tmp_path / SETTINGS
    path.write_text(json.dumps({**RUN, **({"form": form} if form else {})}))
    before = path.read_bytes()
    message = (
        f"--output={tmp_path} holds a run that another version of Textmill began, whose checkpoints"
        " have another form: export it with that version and go on with --init_from, or give"
    )
    with pytest.raises(UsageError, match=message):
        read_settings(tmp_path, "tf_qa")
    with pytest.raises(UsageError, match=message):
        start_or_resume(tmp_path, RUN, resume=True, same=(), defaults={})
    assert path.read_bytes() == before


@pytest.mark.parametrize("name", ["MANIFEST.json", "tokenizer.json"])
def test_the_files_of_a_set_or_a_tokenizer_are_not_replaced(tmp_path, name):
    (tmp_path / name).write_text("theirs")
    with pytest.raises(UsageError, match=f"holds a {name}, and so is a shard set or a tokenizer"):
        start_or_resume(tmp_path, RUN, resume=False, same=(), defaults={})
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_another_run_is_not_gone_on_with(tmp_path):
    """What must agree is named with both values; of what may differ there is a line each."""
    assert start_or_resume(tmp_path, RUN, resume=True, same=("steps",), defaults={}) == []
    with pytest.raises(UsageError, match="holds a run already: add --resume to go on with it, or"):
        start_or_resume(tmp_path, RUN, resume=False, same=(), defaults={})
    others = {
        **RUN,
        "config": {"steps": 6, "output": "there", "epochs": (1, 2)},
        "model": {"heads": 4},
        "fingerprint": "abd",
    }
    with pytest.raises(UsageError) as refused:
        start_or_resume(tmp_path, others, resume=True, same=("steps",), defaults={})
    assert str(refused.value) == (
        f"{tmp_path} cannot be resumed with these settings: heads was 2, is 4; shards' fingerprint "
        "was 'abc', is 'abd'; steps was 5, is 6. Give the shards and settings it began with, or "
        "another --output"
    )
    assert read_settings(tmp_path, "tf_qa") == RUN
    others = {**RUN, "config": {"steps": 6, "output": "there"}}
    changes = start_or_resume(tmp_path, others, resume=True, same=(), defaults={})
    assert changes == ["steps was 5, is 6"]
    assert read_settings(tmp_path, "tf_qa") == others


def test_tuples_are_lists_in_json_and_no_change(tmp_path):
    settings = {**RUN, "config": {"classes": ("a", "b")}}
    assert start_or_resume(tmp_path, settings, resume=False, same=("classes",), defaults={}) == []
    assert start_or_resume(tmp_path, settings, resume=True, same=("classes",), defaults={}) == []


def test_a_run_goes_on_where_models_have_a_new_field(tmp_path):
    """The run has its default: nothing else was there when it began."""
    write_settings(tmp_path, RUN)
    newer = {**RUN, "model": {"heads": 2, "kv_heads": 0, "rates": (0.5,)}}
    for defaults, said in (({}, "kv_heads was None"), ({"kv_heads": 1}, "kv_heads was 1, is 0")):
        with pytest.raises(UsageError, match=said):
            start_or_resume(tmp_path, newer, resume=True, same=(), defaults=defaults)
    defaults = {"kv_heads": 0, "rates": (0.5,), "heads": 1}
    assert start_or_resume(tmp_path, newer, resume=True, same=(), defaults=defaults) == []
    assert read_settings(tmp_path, "tf_qa")["model"] == {"heads": 2, "kv_heads": 0, "rates": [0.5]}


def test_checkpoints_without_settings_are_nobodys(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    with pytest.raises(UsageError, match="holds checkpoints but no config.json: give another --o"):
        start_or_resume(tmp_path, RUN, resume=True, same=(), defaults={})


def test_one_run_at_a_time(tmp_path):
    with claimed(tmp_path / "run"):
        message = f"--output={tmp_path}/run is in use by another run: wait for it, or give another"
        with pytest.raises(UsageError, match=message), claimed(tmp_path / "run"):
            raise AssertionError("two runs in one directory")
    with (
        pytest.raises(
            DataError, match="none'. Finished checkpoints are kept; mend the cause, then"
        ),
        claimed(tmp_path / "run"),
    ):
        (tmp_path / "none").read_bytes()
    (tmp_path / "file").write_text("")
    with pytest.raises(
        UsageError, match=f"--output={tmp_path}/file: it is a file or lies below one"
    ):
        claimed(tmp_path / "file").__enter__()


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
            except UsageError as error:  # in the form's number or name
                assert "that another version of Textmill began" in str(error)
                refused += 1
            else:  # white space
                assert found == RUN
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
