"""A directory is found as it is, or made by one run, which checks it again under the lock."""

import os

import pytest

from textmill.pipelines.writers.output_directory import find_or_make
from textmill.pipelines.writers.staging import STAGING
from textmill.schemas.errors import UsageError
from textmill.schemas.files.finished import DatasetInfo
from textmill.schemas.files.lock import LOCK
from textmill.schemas.format.agreement import REPORT


class Output:
    """A directory; `content` is what `find` returns at each call, and `events` what happened."""

    def __init__(self, folder, *content):
        self.folder, self.content, self.events = folder, list(content), []

    def find(self):
        self.events.append("find")
        return self.content.pop(0)

    def make(self, staging):
        assert (staging.folder, staging.run) == (
            os.path.join(self.folder, STAGING),
            (self.folder / LOCK).read_text(),
        )
        self.events.append("make")

    def find_or_make(self, *, overwrite=False):
        return find_or_make(
            str(self.folder), DatasetInfo, self.find, self.make, overwrite=overwrite
        )


def test_what_is_there_is_not_made_again(tmp_path):
    output = Output(tmp_path / "out", "a dataset")
    assert output.find_or_make() == "a dataset"
    assert output.events == ["find"] and not output.folder.exists()


@pytest.mark.parametrize(
    ("content", "overwrite", "events"),
    [
        ([None, None], False, ["find", "find", "make"]),
        ([None, "by another run"], False, ["find", "find"]),
        ([], True, ["make"]),
    ],
    ids=["none", "another run publishes meanwhile", "overwrite"],
)
def test_it_is_looked_for_again_under_the_lock(tmp_path, content, overwrite, events):
    output = Output(tmp_path / "out", *content)
    assert output.find_or_make(overwrite=overwrite) == (content or [None])[-1]
    assert output.events == events
    assert os.listdir(output.folder) == [LOCK]


@pytest.mark.parametrize("overwrite", [False, True])
def test_what_another_command_publishes_meanwhile_is_not_replaced(tmp_path, overwrite):
    (tmp_path / REPORT).touch()
    output = Output(tmp_path, None)
    with pytest.raises(UsageError, match="already contains a tokenizer .report.json."):
        output.find_or_make(overwrite=overwrite)
    assert "make" not in output.events
