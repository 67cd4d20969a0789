"""Samples: the smallest hashes, whatever the order and the cut of the text."""

import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from pipelines.train import fertility
from pipelines.train.fertility import GroupSample, add_samples
from schemas.errors import UsageError


def column(documents: list[str]) -> pa.LargeStringArray:
    return pa.array(documents, pa.large_string())


def sample_of(documents: list[tuple[str, str]]) -> bytes:
    """Of (group, text), added at once."""
    sample = GroupSample()
    names, texts = zip(*documents, strict=True) if documents else ((), ())
    sample.add(column(list(texts)), column(list(names)))
    return sample.to_bytes()


def expected(documents: list[tuple[str, str]], most: int, longest: int) -> dict:
    """What a sample must be, by its definition: group -> documents, bytes, texts."""
    groups = {}
    for name in {name for name, _ in documents}:
        texts = [text.encode() for group, text in documents if group == name]
        kept, total = [], 0
        for text in sorted(set(texts), key=lambda text: xxhash.xxh3_128_digest(text)[:8][::-1]):
            if total >= most:
                break
            kept.append(text[:longest].decode(errors="ignore").encode())
            total += len(kept[-1])
        groups[name] = len(texts), sum(map(len, texts)), kept
    return groups


DOCUMENTS = st.lists(
    st.tuples(
        st.sampled_from(["", "en", "no", "zh", "æ"]),
        st.text(st.sampled_from("ab é中🙂"), min_size=1, max_size=12),
    ),
    max_size=60,
)


@pytest.fixture(autouse=True)
def small(request, monkeypatch):
    """Samples of 24 bytes, of 12 from three groups on and of 6 from five; of 8 a document."""
    if "small" in request.node.name:
        monkeypatch.setattr(fertility, "GROUP_BYTES", 24)
        monkeypatch.setattr(fertility, "ALL_BYTES", 48)
        monkeypatch.setattr(fertility, "LONGEST_BYTES", 8)


@given(documents=DOCUMENTS, data=st.data())
def test_small_samples_of_any_parts_add_up(documents, data):
    whole = sample_of(documents)
    found = GroupSample()
    found.merge(whole)
    most = {0: 24, 1: 24, 2: 24, 3: 12, 4: 12, 5: 6}[len(found.groups)]
    assert {
        name: (group.documents, group.text_bytes, list(group.texts.values()))
        for name, group in found.groups.items()
    } == expected(documents, most, 8)

    shuffled = data.draw(st.permutations(documents))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(documents)), max_size=4)))
    parts = [shuffled[a:b] for a, b in zip([0, *cuts], [*cuts, len(documents)], strict=True)]
    assert add_samples(map(sample_of, parts)) == whole
    grown = GroupSample()
    for part in parts:
        for name, text in part:
            grown.add(column([text]), name)
    assert grown.to_bytes() == whole


def test_a_long_document_is_sampled_in_part_and_counted_whole():
    sample = GroupSample()
    sample.add(column(["a" + "中" * 100_000]), "all")
    [(name, group)] = sample.groups.items()
    assert (name, group.documents, group.text_bytes) == ("all", 1, 300_001)
    assert list(group.texts.values()) == [("a" + "中" * 21_845).encode()]  # 65,536 bytes


def test_a_sample_is_bounded():
    sample = GroupSample()
    for start in range(0, 20_000, 2000):
        sample.add(column([f"{n} " * 100 for n in range(start, start + 2000)]), "all")
    held = sum(map(len, sample.groups["all"].texts.values()))
    assert sample.groups["all"].documents == 20_000
    assert fertility.GROUP_BYTES <= held < fertility.GROUP_BYTES + 600


def test_too_many_groups_are_refused():
    names = [f"id {n}" for n in range(1000)]
    sample = GroupSample()
    sample.add(column(["text"] * 1000), column(names))
    sample.add(column(["text"] * 1000), column(names))
    with pytest.raises(UsageError, match="more than 1,000 values, such as 'id 0' and 'id 999'"):
        sample.add(column(["text"]), "one more")


def test_long_names_are_cut():
    sample = GroupSample()
    sample.add(column(["a", "b"]), column(["x" * 101, "x" * 102]))
    assert {name: group.documents for name, group in sample.groups.items()} == {"x" * 100: 2}
