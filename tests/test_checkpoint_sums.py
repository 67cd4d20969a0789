"""Sums of checkpoints: what is damaged is named, set aside, and never used."""

import shutil
import subprocess

import pytest

from schemas.errors import DataError
from trainers.run.checkpoint_sums import check_whole, damage_of, newest_whole, numbered, write_sums


@pytest.fixture
def folder(tmp_path):
    """Two checkpoints that are directories, and one that is a file, all with their sums."""
    for step in (2, 10):
        (tmp_path / str(step) / "parts").mkdir(parents=True)
        (tmp_path / str(step) / "parts" / "weights").write_bytes(b"weights %d" % step)
        (tmp_path / str(step) / "progress.json").write_text("{}")
        write_sums(tmp_path / str(step))
    (tmp_path / "step-00000003.pt").write_bytes(b"weights")
    write_sums(tmp_path / "step-00000003.pt")
    return tmp_path


def test_sums_are_those_of_sha256sum(folder):
    for place, name in ((folder / "2", "SHA256SUMS"), (folder, "step-00000003.pt.sha256")):
        assert shutil.which("sha256sum")
        subprocess.run(["sha256sum", "--check", "--strict", "--quiet", name], cwd=place, check=True)
    assert [line.split()[1] for line in (folder / "2" / "SHA256SUMS").read_text().splitlines()] == [
        "parts/weights",
        "progress.json",
    ]


DAMAGES = {
    "a flipped bit": (lambda path: path.write_bytes(b"wdights"), "is not what was written"),
    "an end cut off": (lambda path: path.write_bytes(b""), "is not what was written"),
    "gone": (lambda path: path.unlink(), "is missing"),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", ["2/parts/weights", "step-00000003.pt"])
def test_each_damage_is_named(folder, damage, name):
    checkpoint = folder / name.split("/")[0]
    assert damage_of(checkpoint) is None
    change, said = DAMAGES[damage]
    change(folder / name)
    assert said in (damage_of(checkpoint) or "") and name in (damage_of(checkpoint) or "")
    with pytest.raises(DataError, match=f"is damaged: .*{said}.*Do this"):
        check_whole(checkpoint, "Do this")


@pytest.mark.parametrize("content", [b"", b"abc  progress.json\n", b"\0" * 80])
def test_broken_sums_say_how_to_do_without(folder, content):
    sums = folder / "2" / "SHA256SUMS"
    sums.write_bytes(content)
    assert "remove it to use the checkpoint unchecked" in (damage_of(folder / "2") or "")
    sums.unlink()
    assert damage_of(folder / "2") is None


def test_a_run_goes_on_from_the_newest_whole_checkpoint(folder):
    said = []
    assert newest_whole(numbered(folder), said.append) == 10 and not said
    (folder / "10" / "parts" / "weights").write_bytes(b"weights 11")
    assert newest_whole(numbered(folder), said.append) == 2
    [line] = said
    assert "after step 10 is damaged" in line and "goes on from the one after step 2" in line
    assert str(folder / "10.damaged") in line
    assert (folder / "10.damaged" / "parts" / "weights").read_bytes() == b"weights 11"
    assert list(numbered(folder)) == [2]
    assert newest_whole({}, said.append) is None


def test_a_damaged_file_leaves_its_name_to_the_next(folder):
    path = folder / "step-00000003.pt"
    path.write_bytes(b"wdights")
    assert newest_whole({1: folder / "2", 3: path}, print) == 1
    assert sorted(file.name for file in folder.iterdir()) == ["10", "2", "step-00000003.pt.damaged"]


def test_without_a_whole_one_nothing_is_renamed(folder):
    for step in (2, 10):
        (folder / str(step) / "progress.json").unlink()
    with pytest.raises(DataError, match="no checkpoint is whole: .*10/progress.json is missing"):
        newest_whole(numbered(folder), print)
    assert sorted(numbered(folder)) == [2, 10]
