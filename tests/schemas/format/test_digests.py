"""Lists of digests."""

import numpy as np
import pytest

from textmill.schemas.errors import UsageError
from textmill.schemas.format.digests import Digests, read_digests

LOW, HIGH = "00" * 16, "ff" * 15 + "00"


def test_a_list_has_comments_blank_lines_and_each_digest_once(tmp_path):
    path = tmp_path / "list.txt"
    path.write_bytes(f"\ufeff# of May\r\n{HIGH.upper()}  # asked twice\r\n\n{LOW}\n{HIGH}".encode())
    listed = read_digests(str(path), "forget")
    assert (listed.names, len(listed)) == ([LOW, HIGH], 2)
    assert listed.digests.tobytes() == listed.content == bytes.fromhex(LOW + HIGH)


def test_digests_are_found_with_zeros_at_their_ends():
    listed = Digests(bytes.fromhex(HIGH + LOW))
    others = ["ff" * 16, HIGH, "00" * 15 + "01", LOW, HIGH, "7f" + "00" * 15]
    digests = np.frombuffer(bytes.fromhex("".join(others)), np.uint8).reshape(-1, 16)
    assert listed.find(digests).tolist() == [1, 3, 4]
    assert listed.find(digests[:0]).tolist() == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "\n0123\n",
            "--forget={}, line 2: '0123' is not a digest of 32 hexadecimal digits: correct",
        ),
        ("g" * 32, f"--forget={{}}, line 1: '{'g' * 32}' is not a digest of 32"),
        (f"{LOW} {LOW}", f"--forget={{}}, line 1: '{f'{LOW} {LOW}'[:60]}…' is not a digest of 32"),
        ("# none\n", "--forget={} has no digest: give one in each line"),
    ],
)
def test_other_lines_are_named(tmp_path, content, message):
    path = tmp_path / "list.txt"
    path.write_text(content)
    with pytest.raises(UsageError) as error:
        read_digests(str(path), "forget")
    assert str(error.value).startswith(message.format(path))


def test_a_missing_list_is_named(tmp_path):
    with pytest.raises(UsageError, match="--forget=.*gone.txt cannot be read .*: give a text file"):
        read_digests(str(tmp_path / "gone.txt"), "forget")
