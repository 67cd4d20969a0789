"""Sums of checkpoints: what is damaged is named, set aside, and never used."""

import shutil
import subprocess

import pytest

from schemas.errors import DataError
from tests.tools.checkpoint_sums import sign
from trainers.run.checkpoints import damage_of, newest_whole, numbered

STATE = "state.safetensors"


@pytest.fixture
def folder(tmp_path):
    """Two checkpoints with their sums."""
    for step in (2, 10):
        (tmp_path / str(step)).mkdir()
        (tmp_path / str(step) / STATE).write_bytes(b"weights %d" % step)
        (tmp_path / str(step) / "progress.json").write_text("{}")
        sign(tmp_path / str(step))
    return tmp_path


def test_sums_are_those_of_sha256sum(folder):
    assert shutil.which("sha256sum")
    check = ["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"]
    subprocess.run(check, cwd=folder / "2", check=True)


DAMAGES = {
    "a flipped bit": (lambda path: path.write_bytes(b"wdights"), "has changed"),
    "an end cut off": (lambda path: path.write_bytes(b""), "has changed"),
    "gone": (lambda path: path.unlink(), "is missing"),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", [STATE, "progress.json"])
def test_each_damage_is_named(folder, damage, name):
    checkpoint = folder / "2"
    assert damage_of(checkpoint) is None
    change, said = DAMAGES[damage]
    change(checkpoint / name)
    assert said in (damage_of(checkpoint) or "") and name in (damage_of(checkpoint) or "")


@pytest.mark.parametrize(
    "content", [b"", b"abc  progress.json\n", b"0" * 64 + b"  progress.json\n", b"\0" * 80]
)
def test_broken_sums_vouch_for_nothing(folder, content):
    sums = folder / "2" / "SHA256SUMS"
    sums.write_bytes(content)
    assert damage_of(folder / "2") == f"{sums} is broken"
    sums.unlink()
    assert damage_of(folder / "2") == f"{sums} is missing"


def test_sums_of_any_size_are_refused_unread(folder):
    """A sparse file of 12 GB was read whole."""
    sums = folder / "2" / "SHA256SUMS"
    with open(sums, "r+b") as file:
        file.truncate(1 << 40)
    assert damage_of(folder / "2") == f"{sums} is broken"


def test_what_a_file_system_leaves_is_no_damage(folder):
    (folder / "2" / ".nfs0001").write_bytes(b"")
    assert damage_of(folder / "2") is None


@pytest.mark.parametrize("name", [STATE, "SHA256SUMS"])
def test_a_checkpoint_that_cannot_be_read_is_not_called_damaged(folder, name):
    """A disk that fails for a moment, or rights: it is no reason to do steps again."""
    (folder / "10" / name).unlink()
    (folder / "10" / name).symlink_to("/proc/self/mem")  # its first byte cannot be read
    with pytest.raises((DataError, OSError), match="Input/output error"):
        newest_whole(numbered(folder), print, {})
    assert sorted(numbered(folder)) == [2, 10]


def test_a_run_goes_on_from_the_newest_whole_checkpoint(folder):
    said = []
    assert newest_whole(numbered(folder), said.append, {}) == 10 and not said
    (folder / "10" / STATE).write_bytes(b"weights 11")
    assert newest_whole(numbered(folder), said.append, {}) == 2
    [line] = said
    assert "after step 10 is damaged" in line and "resumes after step 2" in line
    assert str(folder / "10.damaged") in line
    assert (folder / "10.damaged" / STATE).read_bytes() == b"weights 11"
    assert list(numbered(folder)) == [2]
    assert newest_whole({}, said.append, {}) is None


def test_a_damaged_checkpoint_leaves_its_name_to_the_next(folder):
    for _ in range(2):  # the second one replaces the first that stepped aside
        path = folder / "10"
        (path / STATE).write_bytes(b"wdights")
        assert newest_whole(numbered(folder), print, {}) == 2
        assert sorted(file.name for file in folder.iterdir()) == ["10.damaged", "2"]
        shutil.copytree(folder / "2", path)


def test_without_a_whole_one_nothing_is_renamed(folder):
    for step in (2, 10):
        (folder / str(step) / STATE).unlink()
    with pytest.raises(DataError, match="all checkpoints are damaged: .*10/state.safetensors is"):
        newest_whole(numbered(folder), print, {})
    assert sorted(numbered(folder)) == [2, 10]


def test_a_checkpoint_is_whole_with_the_best_weights_up_to_its_step(folder):
    best = {step: folder / "best" / str(step) for step in (1, 8, 11)}
    for path in best.values():
        shutil.copytree(folder / "2", path)
    (best[11] / STATE).write_bytes(b"wdights")  # newer than all: a resumed run makes it again
    said = []
    assert newest_whole(numbered(folder), said.append, best) == 10 and not said
    (best[8] / STATE).write_bytes(b"wdights")
    (best[1] / STATE).write_bytes(b"wdights")
    with pytest.raises(DataError, match="all checkpoints are damaged: .*best/1/state") as refused:
        newest_whole(numbered(folder), print, best)
    assert f"from a backup, remove {best[1]} to resume without it, or" in str(refused.value)
    shutil.rmtree(best.pop(1))
    assert newest_whole(numbered(folder), said.append, best) == 2
    [line] = said
    assert f"after step 10 is damaged: {best[8] / STATE} has changed" in line
