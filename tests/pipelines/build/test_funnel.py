"""What is left out is measured by reason, and the same however a set is made."""

import json
from collections import Counter
from pathlib import Path

import pytest
import xxhash
import yaml
from tokenizers import Tokenizer

from pipelines.build_shards import main
from pipelines.verify import main as verify
from schemas.drops import SAMPLES, shorten
from schemas.errors import UsageError
from schemas.sidecar import read_set
from tests.tools.near_factory import digest_of

HOSTILE = [
    "<script>alert(1)</script></details></style> & {{ 7 * 7 }}",
    "a\x00b\x1b[31mred\x07 \u202etfel ot thgir\u202c end",
]


def spam(document):
    """A filter of the user's."""
    return "spam" if "spam" in document["text"] else None


@pytest.fixture(scope="module")
def texts(topics) -> list[str]:
    unique = sorted(set(filter(None, topics)))
    long = [text for text in unique if len(text) >= 100]
    spoilt = [f"spam spam {text}" for text in long[:30]]
    return [*unique, *long[:40], *long[:3], *spoilt, *HOSTILE]


def write(path: Path, texts: list[str]) -> Path:
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return path


FLAGS = [
    "--min_chars=100",
    "--filter=tests.pipelines.build.test_funnel:spam",
    "--num_shards=2",
    "--task=clm",
    "--max_length=64",
]


def build(tokenizer_path, output, inputs, *more):
    flags = [f"--input={path}" for path in inputs]
    main([*flags, f"--tokenizer={tokenizer_path}", f"--output={output}", *FLAGS, *more])
    return read_set(str(output))


@pytest.fixture(scope="module")
def folder(tmp_path_factory, texts):
    folder = tmp_path_factory.mktemp("funnel")
    write(folder / "all.jsonl", texts)
    return folder


@pytest.fixture(scope="module")
def made(folder, tokenizer_path):
    return build(tokenizer_path, folder / "made", [folder / "all.jsonl"], "--explain=always")


def test_sizes_and_samples_by_reason(made, texts, tokenizer_path):
    """Oracle: what verify's tokenizer, a set and a loop make of the same documents."""
    tokenizer = Tokenizer.from_file(str(tokenizer_path))

    def tokens(text):
        return len(tokenizer.encode(text, add_special_tokens=False).ids)

    funnel, dropped = made.stats.funnel, made.stats.all_dropped()
    assert set(dropped) == {"min_chars", "filter:spam", "duplicates"}
    assert made.stats.broken_equations() == []
    assert verify([made.directory]) in (None, 0)
    assert funnel.documents == len(texts)
    assert funnel.text_bytes == sum(len(text.encode()) for text in texts)
    assert funnel.tokens == sum(map(tokens, texts))
    short = [text for text in texts if len(text) < 100]
    spoilt = [text for text in texts if spam({"text": text}) and text not in short]
    rest = [text for text in texts if text not in short and text not in spoilt]
    often = {text: times - 1 for text, times in Counter(rest).items() if times > 1}
    for reason, left_out in {
        "min_chars": short,
        "filter:spam": spoilt,
        "duplicates": [text for text, times in often.items() for _ in range(times)],
    }.items():
        removed = funnel.removed[reason]
        assert removed.documents == len(left_out) == dropped[reason]
        assert removed.text_bytes == sum(len(text.encode()) for text in left_out)
        assert removed.tokens == sum(map(tokens, left_out))
        named = {xxhash.xxh3_128_hexdigest(text.encode()): text for text in left_out}
        expected = [(name, shorten(named[name])) for name in sorted(named)[:SAMPLES]]
        found = [(sample.document, sample.excerpt) for sample in removed.samples]
        if reason == "duplicates":  # whose text is what their ids spell
            found = [(name, text.replace("↵", "\n")) for name, text in found]
        assert found == expected


def test_it_is_the_same_however_the_set_is_made(made, folder, texts, tokenizer_path):
    thirds = [write(folder / f"{n}.jsonl", texts[n::3]) for n in range(3)]
    ways = {
        "runner": ([folder / "all.jsonl"], ["--exchange=runner"]),
        "files": (thirds, []),
        "repeats": (thirds[::-1], ["--direct_runner_bundle_repeat=2"]),
        "workers": (
            thirds,
            ["--direct_running_mode=multi_processing", "--direct_num_workers=2"],
        ),
    }
    for name, (inputs, more) in ways.items():
        other = build(tokenizer_path, folder / name, inputs, "--explain=always", *more)
        assert other.stats.funnel == made.stats.funnel, name
        pages = [(folder / n / "stats.json").read_bytes() for n in ("made", name)]
        sizes = [json.loads(page).pop("source_bytes") for page in pages]
        assert pages[0].replace(b"%d" % sizes[0], b"") == pages[1].replace(b"%d" % sizes[1], b"")


def test_a_set_that_nobody_asked_to_explain_has_none_of_it(made, folder, tokenizer_path):
    plain = build(tokenizer_path, folder / "plain", [folder / "all.jsonl"])
    stats = json.loads((folder / "plain/stats.json").read_text())
    told = json.loads((folder / "made/stats.json").read_text())
    assert "funnel" not in stats
    assert stats == {name: value for name, value in told.items() if name != "funnel"}
    assert "explain" not in yaml.safe_load((folder / "plain/config.yaml").read_text())
    assert yaml.safe_load((folder / "made/config.yaml").read_text())["explain"] == "always"
    for name in ("schema.json", "token_counts.npy"):
        assert (folder / "plain" / name).read_bytes() == (folder / "made" / name).read_bytes()
    assert plain.schema.fingerprint == made.schema.fingerprint
    with pytest.raises(UsageError, match="made otherwise .without what --explain counts"):
        build(tokenizer_path, folder / "plain", [folder / "all.jsonl"], "--explain=always")
    build(tokenizer_path, folder / "made", [folder / "all.jsonl"])  # has more than is asked for


def test_what_an_evaluation_split_has_is_measured_too(folder, texts, tokenizer_path):
    unique = sorted(set(texts))[:200]
    train = write(folder / "train.jsonl", unique[:-20])
    test = write(folder / "test.jsonl", unique[-40:])
    output = folder / "split"
    flags = [f"--train_input={train}", f"--test_input={test}", "--explain=always"]
    main([*flags, f"--tokenizer={tokenizer_path}", f"--output={output}", "--max_length=64"])
    info = read_set(str(output))
    assert info.stats.funnel is not None
    [(reason, removed)] = info.stats.funnel.removed.items()
    assert (reason, removed.documents) == ("held_out", 20)
    assert removed.text_bytes == sum(len(text.encode()) for text in unique[-40:-20])
    assert info.stats.broken_equations() == []


def test_what_edits_take_is_measured_where_the_document_is_kept(tokenizer_path, tmp_path):
    """C4 drops lines without an end; who is dropped after an edit counts as it was given."""

    def document(number):
        lines = [f"This is line {line} of document {number}, as said." for line in range(6)]
        return "\n".join([*lines, "a menu"])

    documents = [*map(document, range(30)), document(99) + "\nThis one is spam, as said."]
    source = write(tmp_path / "lines.jsonl", documents)
    info = build(tokenizer_path, tmp_path / "set", [source], "--quality=c4")
    funnel = info.stats.funnel
    assert funnel is not None and info.stats.broken_equations() == []
    assert (funnel.documents, funnel.edited_bytes) == (31, 30 * len("\na menu"))
    assert funnel.text_bytes == sum(len(text.encode()) for text in documents)
    removed = funnel.removed["filter:spam"]
    assert (removed.documents, removed.text_bytes) == (1, len(documents[-1]))
    assert removed.samples[0].document == digest_of(documents[-1]).hex()
    assert removed.samples[0].excerpt == shorten(documents[-1])
