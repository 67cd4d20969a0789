"""Vocabularies of the whole command beside those that `tokenizers` trains on the documents."""

import json

import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from tests.pipelines.tokenizer.test_word_counts import cut_by_tokenizers, spaced
from tests.tools.places import DATA, ROOT
from textmill.pipelines.encoding.patterns import GPT2, NAMES, PATTERNS, pattern_of
from textmill.pipelines.tokenizer.histogram import read_histogram

SPECIALS = "<s>,<pad>,</s>,<unk>,<mask>"
LOOKS_BACK = r"(?<=\d)\D|\p{L}+|\d+|."  # is not compiled here
NORMALIZERS = {
    "nfkd": normalizers.NFKD(),
    "strip_accents": normalizers.StripAccents(),
    "lowercase": normalizers.Lowercase(),
}


def trained_by_tokenizers(
    documents: list[str],
    vocab_size: int,
    *,
    pattern: str = GPT2,
    normalizer: str = "",
    add_prefix_space: bool = False,
    min_frequency: int = 2,
    max_token_length: int | None = None,
    special_tokens: str = SPECIALS,
) -> dict:
    """The tokenizer.json that `tokenizers` trains on whole documents."""
    tokenizer = Tokenizer(models.BPE())
    step, documents = cut_by_tokenizers(documents, pattern_of(pattern), add_prefix_space)
    tokenizer.pre_tokenizer = step  # pyright: ignore[reportAttributeAccessIssue]
    if normalizer:
        steps = [NORMALIZERS[name] for name in normalizer.split(",")]
        tokenizer.normalizer = normalizers.Sequence(steps)  # pyright: ignore[reportAttributeAccessIssue]
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=min_frequency,
        max_token_length=max_token_length,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=special_tokens.split(","),
        show_progress=False,
    )
    tokenizer.train_from_iterator(documents, trainer)
    return json.loads(tokenizer.to_str())


def flags_of(settings: dict) -> list[str]:
    return [
        f"--{name}" if value is True else f"--{name}={value}" for name, value in settings.items()
    ]


SPELLED = "low,wid,中,!"  # merges spell the first two
SETTINGS = {
    "every pair": {"min_frequency": 1, "add_prefix_space": True, "special_tokens": "<s>,</s>"},
    "no rare pair": {"min_frequency": 3, "add_prefix_space": True},
    "special tokens in the text": {"min_frequency": 1, "special_tokens": SPELLED},
    "and no rare pair": {"min_frequency": 3, "special_tokens": SPELLED, "add_prefix_space": True},
    "short tokens": {"max_token_length": 4},
    "normalizers": {"pattern": "llama3", "normalizer": "nfkd,strip_accents,lowercase"},
    **{
        f"{pattern} {'after a space' * is_spaced}": {"pattern": pattern}
        | ({"add_prefix_space": True} if is_spaced else {})
        for pattern in (*PATTERNS, "digits:2", LOOKS_BACK)
        for is_spaced in (False, True)
    },
}
# A mark alone is a document that strip_accents leaves empty.
MORE_LINES = (
    "12345 12,345 It'S IT'S theirTheir\t\tx 1234\ncafe\u0301 CAFÉ café ﬁne\n\u0301\nﬁn\n" * 3
)


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_vocabularies_are_those_of_tokenizers(train, tmp_path, text, settings, capsys):
    text.write_text(text.read_text(encoding="utf-8") + MORE_LINES, encoding="utf-8")
    report = train("out", "--vocab_size=320", *flags_of(settings))
    documents = list(filter(None, text.read_text(encoding="utf-8").split("\n")))
    theirs = trained_by_tokenizers(documents, 320, **settings)
    path = tmp_path / "out" / "tokenizer.json"
    ours = json.loads(path.read_text(encoding="utf-8"))
    for part in ("vocab", "merges"):
        assert ours["model"][part] == theirs["model"][part]
    assert ours["normalizer"] == theirs["normalizer"]
    # A step of its own puts the space before the first word.
    steps = ours["pre_tokenizer"].get("pretokenizers", [ours["pre_tokenizer"]])
    cuts = [step for step in steps if step["type"] != "Metaspace"]
    assert cuts == theirs["pre_tokenizer"].get("pretokenizers", [theirs["pre_tokenizer"]])
    recorded = report["parameters"] | {
        "special_tokens": ",".join(report["parameters"]["special_tokens"])
    }
    assert recorded | settings == recorded
    is_slow = settings.get("pattern") == LOOKS_BACK
    assert ("`tokenizers` splits the" in capsys.readouterr().out) == is_slow
    if "special_tokens" in settings:  # which the text may hold
        return
    # The words of the report are those that the tokenizer makes of the text.
    tokenizer = Tokenizer.from_file(str(path))
    encoded = tokenizer.encode_batch(documents, add_special_tokens=False)
    assert report["tokens"] == sum(map(len, encoded))
    if "normalizer" not in settings:
        given = map(spaced, documents) if "add_prefix_space" in settings else documents
        assert [tokenizer.decode(encoding.ids) for encoding in encoded] == list(given)


def test_a_normalizer_gives_three_spellings_one_word(train, tmp_path, text):
    text.write_text("cafe\u0301 CAFÉ café\n\u0301\n" * 3, encoding="utf-8")
    normalizer = "--normalizer=nfkd,strip_accents,lowercase"
    report = train("out", "--pattern=llama3", "--vocab_size=270", normalizer)
    words = read_histogram(str(tmp_path / "out" / "histogram.parquet"))
    assert words.counts.to_pydict() == {"word": [b" cafe", b"cafe"], "count": [6, 3]}
    assert (words.origin.documents, report["text"]["bytes"]) == (6, 3 * (18 + 2))
    assert (words.origin.bytes, words.origin.normalized_bytes) == (3 * (18 + 2), 3 * 14)


# ---- real texts ----


@pytest.fixture(scope="module")
def hard_texts() -> list[str]:
    """Hard strings, and every code point of the BMP."""
    hard = DATA / "hard"
    return [
        *filter(None, json.loads((hard / "blns.json").read_text(encoding="utf-8"))),
        *((hard / f"{name}.txt").read_text("utf-8") for name in ("bmp-separated", "utf8tests")),
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        *({"pattern": pattern} for pattern in (*PATTERNS, "digits:1", "digits:2", LOOKS_BACK)),
        *({"pattern": pattern, "add_prefix_space": True} for pattern in (GPT2, "o200k")),
    ],
    ids=lambda settings: " ".join(map(str, settings.values())),
)
def test_vocabularies_of_real_texts(train, tmp_path, real_texts, hard_texts, settings):
    """Merges of a smaller vocabulary, trained from the histogram, are the first of a larger one.

    GPT-2's pattern cuts all 36 MB of Norwegian reviews and WikiText, each other one a quarter.
    """
    step, sizes = (1, (128_000, 5_000)) if settings == {"pattern": GPT2} else (4, (32_000, 5_000))
    flags = flags_of(settings)
    real = [*real_texts("norec/train.jsonl"), *real_texts("wikitext-2/wiki.train.tokens")]
    documents = [*hard_texts, *real[::step]]
    path = tmp_path / "documents.jsonl"
    path.write_text("".join(json.dumps({"text": document}) + "\n" for document in documents))
    theirs = trained_by_tokenizers(documents, sizes[0], **settings)["model"]
    assert len(theirs["vocab"]) == sizes[0]
    given = f"--input={path}"
    for size in sizes:
        train(f"{size}", given, f"--vocab_size={size}", *flags)
        given = f"--from_histogram={tmp_path}/{size}/histogram.parquet"
        ours = json.loads((tmp_path / f"{size}" / "tokenizer.json").read_text("utf-8"))["model"]
        assert ours["merges"] == theirs["merges"][: size - 261]
        assert ours["vocab"] == {token: i for token, i in theirs["vocab"].items() if i < size}


def test_the_page_has_the_patterns_as_they_are():
    assert {*PATTERNS, "digits:N"} == set(NAMES)
    page = (ROOT / "docs" / "tokenizers.md").read_text(encoding="utf-8")
    for name, pattern in PATTERNS.items():
        assert f"\n{name:7} {pattern}\n" in page
