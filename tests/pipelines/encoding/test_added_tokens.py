import re

import numpy as np
import pytest

from textmill.pipelines.encoding.added_tokens import AddedTokens
from textmill.pipelines.rows.ragged import Ragged

_IDS = {"<s>": 1000, "<s>>": 1001, "</s>": 1002, "[é]": 1003}
# Bytes, or only pairs of them, that blocks are not tested for.
_MANY = {f"{c}!": 2000 + i for i, c in enumerate("abcdefg")}
_MANY_PAIRS = {f"<{c}!": 2000 + i for i, c in enumerate("abcdefg")}
_NEAR = ("<s", "</s", "[é", "<", "[", "s>", "</>", "é]", "")


def _ids_of_bytes(data: np.ndarray, offsets: np.ndarray, firsts: np.ndarray) -> Ragged:
    return Ragged(data.astype(np.uint32), offsets)


def _plainly(text: str, ids: dict[str, int]) -> list[int]:
    """The leftmost of the longest tokens, by a regular expression; other bytes are their ids."""
    longest_first = sorted(map(re.escape, ids), key=len, reverse=True)
    parts = re.split(f"({'|'.join(longest_first)})", text)
    return [i for part in parts for i in ([ids[part]] if part in ids else part.encode())]


@pytest.mark.parametrize(
    "ids",
    [_IDS, {"|": 1, **_IDS}, _IDS | _MANY_PAIRS, _IDS | _MANY],
    ids=["few", "byte", "pairs", "many"],
)
def test_tokens_and_near_misses_at_the_ends_of_blocks(ids):
    """Blocks of 128 bytes are skipped; a token may begin or end at any byte near their ends."""
    sizes = [*range(4), *range(122, 132), *range(250, 260)]
    texts = [
        "." * size + part + "." * rest + other
        for size in sizes
        for part in (*ids, *_NEAR)
        for rest, other in ((0, ""), (1, "<s>"), (127, "</s>"), (128, "<s"), (129, ""))
    ]
    tokens = [{"content": c, "id": i, "lstrip": False, "rstrip": False} for c, i in ids.items()]
    encoded = [text.encode() for text in texts]
    offsets = np.append(0, np.cumsum([*map(len, encoded)]))
    data = np.frombuffer(b"".join(encoded), np.uint8)
    firsts = np.arange(len(texts))
    found = AddedTokens(tokens).encode_around(data, offsets, firsts, _ids_of_bytes)
    expected = [_plainly(text, ids) for text in texts]
    assert found.values.tolist() == [i for one in expected for i in one]
    assert found.lengths.tolist() == [*map(len, expected)]
