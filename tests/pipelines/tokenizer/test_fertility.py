"""Fertility by hand and against a count of each token of each word; groups and their samples."""

import json
from dataclasses import replace

import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from tokenizers import ByteLevelBPETokenizer, Tokenizer, models, pre_tokenizers

from tests.tools.filter_factory import column
from textmill.pipelines.readers.sources import Block, Source, plan_blocks
from textmill.pipelines.readers.stored import Part
from textmill.pipelines.tokenizer import fertility
from textmill.pipelines.tokenizer.fertility import (
    Fertility,
    FileGroups,
    GroupSample,
    add_samples,
    count_tokens,
    file_groups,
    measure_fertility,
)
from textmill.pipelines.tokenizer.summary import fertility_table
from textmill.schemas.errors import UsageError


def of_bytes(use_regex: bool = True) -> Tokenizer:
    """A token a byte."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)
    return tokenizer


def of_merges() -> Tokenizer:
    """Tokens of several characters, some with a space before; offsets without that space."""
    trained = ByteLevelBPETokenizer(trim_offsets=True)
    text = ["low lower lowest 中文 中文, é 🙂 🙂  \n\n  low\tnew newer newest, it's wide wider"] * 9
    trained.train_from_iterator(text, 330, 2, show_progress=False)
    return Tokenizer.from_str(trained.to_str())


def of_clauses() -> Tokenizer:
    """Merges that cross spaces: a token may hold several words."""
    tokenizer = of_bytes(use_regex=False)
    vocab = {**tokenizer.get_vocab(), "aĠ": 256, "aĠa": 257, "aĠaĠ": 258}
    merges = [("a", "Ġ"), ("aĠ", "a"), ("aĠa", "Ġ")]
    tokenizer.model = models.BPE(vocab, merges)
    return tokenizer


TEXTS = st.lists(
    st.text(st.one_of(st.sampled_from("low er\n\t\u3000\x1f'中文é🙂,"), st.characters()))
)


@pytest.mark.parametrize("tokenizer", [of_bytes(), of_merges(), of_clauses()])
@given(documents=TEXTS)
def test_every_token_counts_for_the_word_of_its_first_visible_character(tokenizer, documents):
    documents = [d.encode(errors="ignore").decode() for d in documents]
    tokens, of_words = 0, []
    for document in documents:
        word_of, words = [-1] * len(document), 0
        for place, character in enumerate(document):
            if not character.isspace():
                words += place == 0 or document[place - 1].isspace()
                word_of[place] = words - 1
        assert words == len(document.split())
        counts = [0] * words
        for start, stop in tokenizer.encode(document, add_special_tokens=False).offsets:
            tokens += 1
            seen = [word for word in word_of[start:stop] if word >= 0]
            if seen:
                counts[seen[0]] += 1
        of_words += counts
    total, found = count_tokens(column(["before", *documents]).slice(1), tokenizer)
    assert (total, found.tolist()) == (tokens, of_words)


def test_figures_by_hand():
    sample = GroupSample()
    sample.add(column(["ab cdef", "é g"]), "few")
    sample.add(column(["word " * 5000, "ab"]), "many")
    sample.add(column([" \n "]), "blank")
    many, few, blank = measure_fertility(sample, of_bytes())
    assert few == Fertility(
        group="few",
        documents=2,
        bytes=7 + 4,
        sampled_documents=2,
        tokens_per_word=11 / 4,
        bytes_per_token=1,
        characters_per_token=10 / 11,
        words_of_over_3_tokens=1 / 4,  # cdef
    )
    assert (many.group, many.documents, many.bytes) == ("many", 2, 25_002)
    assert many.tokens_per_word == 25_002 / 5001
    assert many.words_of_over_3_tokens == 5000 / 5001
    assert (blank.tokens_per_word, blank.words_of_over_3_tokens) == (3, 0)  # no word


def test_the_table_lists_the_largest_groups():
    groups = tuple(
        Fertility(f"g{n}" if n else "", 1, 100, 1, 1.5, 4.25, 4.125, 0.0125) for n in range(23)
    )
    console = Console(width=80, record=True, file=None)
    with console.capture() as printed:
        console.print(fertility_table(groups))
    lines = printed.get().split("\n")
    [first] = [line for line in lines if "(none)" in line]
    assert first.strip("│ ").split() == "(none) │ 4.3% │ 1.50 │ 4.25 │ 4.12 │ 1.2%".split()
    assert "and 3 more" in printed.get() and "g19" in printed.get() and "g20" not in printed.get()
    assert np.all([len(line) <= 80 for line in lines])


# ---- groups of files ----


def blocks_of(*files: tuple[str, str]) -> list[Block]:
    """A block of files given as (input, path)."""
    return [Block(0, tuple(Part(path, 1, 0, 1, input=given) for given, path in files))]


@pytest.mark.parametrize(
    ("files", "names"),
    [
        ([("c/*", "c/a.txt"), ("c/*", "c/b.txt")], ["all", "all"]),
        ([("c", "c/no/a"), ("c", "c/en/b"), ("c", "c/en/x/c")], ["no", "en", "en"]),
        ([("c", "c/no/a"), ("c", "c/b")], ["no", "."]),
        ([("c", "/c/no/a"), ("c", "/d/no/b")], ["c", "d"]),
        ([("c", "c/n/a"), ("c", "c/nn/b")], ["n", "nn"]),
        ([("gs://b/**", "gs://b/no/a"), ("gs://b/**", "gs://b/en/a")], ["no", "en"]),
        ([("c/no*.txt", "c/no1.txt"), ("c/en.txt", "c/en.txt")], ["no*.txt", "en.txt"]),
        ([("no", "no/a/1"), ("en", "en/b/1"), ("en", "en/a/1")], ["no", "en", "en"]),
        ([("c/", "c/a"), ("c/en", "c/en/a")], ["c/", "en"]),
        ([("gs://b/en", "gs://b/en/a"), ("hf:no", "/h/a.arrow")], ["gs://b/en", "hf:no"]),
    ],
)
def test_names(files, names):
    blocks = blocks_of(*files)
    groups = file_groups(blocks)
    assert [groups.name(part) for part in blocks[0].parts] == names


def test_a_thousand_inputs_or_folders_at_most():
    for files in ([(f"{n}", "a") for n in range(1001)], [("in", f"{n}/a") for n in range(1001)]):
        assert file_groups(blocks_of(*files)) == FileGroups("all")
        assert file_groups(blocks_of(*files[1:])).by != "all"


def test_a_block_is_split_where_groups_change():
    files = [("c", "c/en/a"), ("c", "c/en/b"), ("c", "c/no/a"), ("c", "c/sv/a")]
    [block] = blocks_of(*files)
    split = file_groups([block]).split(replace(block, index=7))
    assert [(name, [part.path for part in own.parts]) for name, own in split] == [
        ("en", ["c/en/a", "c/en/b"]),
        ("no", ["c/no/a"]),
        ("sv", ["c/sv/a"]),
    ]
    assert {own.index for _, own in split} == {7}


def test_the_last_input_that_names_a_file_has_it(tmp_path):
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("text\n")
    listed = tmp_path / "list"
    listed.write_text(f"{tmp_path}/a.txt\n{tmp_path}/b.txt\n")
    [block] = plan_blocks(Source((f"@{listed}", f"{tmp_path}/b.txt")))
    assert [part.input for part in block.parts] == [f"@{listed}", f"{tmp_path}/b.txt"]


# ---- samples: the smallest hashes, whatever the order and the cut of the text ----


def sample_of(documents: list[tuple[str, str]]) -> bytes:
    """A sample of (group, text), added at once."""
    sample = GroupSample()
    names, texts = zip(*documents, strict=True) if documents else ((), ())
    sample.add(column(list(texts)), column(list(names)))
    return sample.to_bytes()


def expected(documents: list[tuple[str, str]], most: int, longest: int) -> dict:
    """A sample by its definition: group -> documents, bytes, texts."""
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


TEXT = st.text(st.sampled_from("ab é中🙂"), min_size=1, max_size=12)
DOCUMENTS = st.integers(1, 5).flatmap(
    lambda groups: st.lists(
        st.tuples(st.sampled_from(["", "en", "no", "zh", "æ"][:groups]), TEXT), max_size=60
    )
)


@given(documents=DOCUMENTS, data=st.data())
def test_small_samples_of_any_parts_add_up(documents, data):
    """Samples of 24 bytes, of 12 from three groups on and of 6 from five; of 8 a document."""
    shuffled = data.draw(st.permutations(documents))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(documents)), max_size=4)))
    parts = [shuffled[a:b] for a, b in zip([0, *cuts], [*cuts, len(documents)], strict=True)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fertility, "GROUP_BYTES", 24)
        patch.setattr(fertility, "ALL_BYTES", 48)
        patch.setattr(fertility, "LONGEST_BYTES", 8)
        whole = sample_of(documents)
        found = GroupSample()
        found.merge(whole)
        most = {0: 24, 1: 24, 2: 24, 3: 12, 4: 12, 5: 6}[len(found.groups)]
        assert {
            name: (group.documents, group.text_bytes, list(group.texts.values()))
            for name, group in found.groups.items()
        } == expected(documents, most, 8)
        assert add_samples(map(sample_of, parts)) == whole
        grown = GroupSample()
        for name, text in shuffled:
            grown.add(column([text]), name)
        assert grown.to_bytes() == whole


def test_long_names_of_groups_are_cut_and_too_many_are_refused():
    names = ["x" * 101, "x" * 102, *(f"id {n}" for n in range(999))]
    sample = GroupSample()
    for _ in range(2):
        sample.add(column(["text"] * 1001), column(names))
    assert sample.groups["x" * 100].documents == 4
    with pytest.raises(UsageError, match="more than 1,000 values, such as 'id 0' and 'xxx"):
        sample.add(column(["text"]), "one more")


# ---- whole runs ----


def test_groups_of_a_field(train, tmp_path, capsys):
    path = tmp_path / "documents.jsonl"
    records = [{"text": "low", "n": 1}, {"text": "low", "n": True}, {"text": "low low"}]
    path.write_text("".join(json.dumps(r) + "\n" for r in [*records, {"text": "x", "n": [1]}]))
    report = train("out", f"--input={path}", "--vocab_size=263", "--group_field=n")
    assert report["text"]["refused"] == {"not_an_id": 1}
    # low is one token, and Ġ low two.
    assert [(g["group"], g["documents"], g["tokens_per_word"]) for g in report["fertility"]] == [
        ("", 1, 3 / 2),
        ("1", 1, 1),
        ("true", 1, 1),
    ]
    assert "(none) │ 53.8% │ 1.50 │" in " ".join(capsys.readouterr().out.split())
