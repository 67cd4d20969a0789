"""Documents that --forget lists are forgotten, as if the input had never had them."""

import json
from pathlib import Path

import pytest
from xxhash import xxh3_128_hexdigest

from tests.golden.outputs import HERE, KEPT
from tests.tools.corpus_factory import build, texts_of, write_lines
from textmill.pipelines import build_shards
from textmill.pipelines.writers import shard_files
from textmill.schemas.errors import DataError, UsageError
from textmill.schemas.files.finished import read_dataset

CUT = "cafe\u0301 noir\nis a black coffee, as said\na menu"
TEXTS = [
    *(f"document {n} has five words" for n in range(30)),
    CUT,
    "a short one",
    "document 3 has five words",
]
# By the text as it is read; in its normal form; after the rules; unknown.
READ, NORMAL = CUT, CUT.replace("e\u0301", "\u00e9")


def digest(text):
    return xxh3_128_hexdigest(text.encode())


SECOND = json.loads((HERE / "inputs/documents.jsonl").read_text().splitlines()[2])["text"]
UNKNOWN = digest("nobody wrote this")
FILES = (
    "README.md",
    "dataset_info.json",
    "schema.json",
    "stats.json",
    "inputs.json",
    "config.yaml",
    "report.html",
    "MANIFEST.json",
)


def content(directory):
    """The files that must be equal."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(Path(directory).rglob("*"))
        if path.is_file() and path.name not in (*FILES, "forgotten.txt", ".lock")
    }


def found_in(directory):
    """What forgotten.txt says of each digest."""
    lines = (Path(directory) / "forgotten.txt").read_text().splitlines()
    return dict(line.split("  # ") for line in lines)


def listed(tmp_path, *digests):
    path = tmp_path / "digests.txt"
    path.write_text("".join(f"{one}\n" for one in digests))
    return f"--forget={path}"


@pytest.mark.parametrize("shuffle_by", ["files", "runner"])
def test_a_corpus_is_as_if_it_had_never_read_them(tmp_path, shuffle_by):
    whole = write_lines(tmp_path / "whole.jsonl", TEXTS)
    gone = {CUT, "a short one", "document 3 has five words"}
    others = write_lines(tmp_path / "others.jsonl", [text for text in TEXTS if text not in gone])
    flags = ["--num_files=2", "--min_words=4", "--keep_rejects", f"--shuffle_by={shuffle_by}"]
    flags += ["--near_duplicates=jaccard:0.8"]
    names = sorted([digest(NORMAL), digest("a short one"), digest("document 3 has five words")])
    forget = listed(tmp_path, *names, UNKNOWN)
    found = build(whole, tmp_path / "found", *flags, forget)
    due = build(others, tmp_path / "due", *flags)
    assert content(tmp_path / "found") == content(tmp_path / "due")
    stats = found.stats
    assert (stats.documents_read, due.stats.documents_read) == (33, 29)
    assert stats.dropped == {**due.stats.dropped, "forgotten": 4}
    assert stats.broken_equations() == []
    removed = stats.funnel.removed["forgotten"]
    texts = [NORMAL, "a short one", *["document 3 has five words"] * 2]
    assert (removed.documents, removed.samples) == (4, ())
    assert removed.text_bytes == sum(len(text.encode()) for text in texts)
    assert removed.words == sum(len(text.split()) for text in texts)
    counts = {name: 1 for name in names} | {digest("document 3 has five words"): 2}
    lines = [f"{n}  # {counts.get(n, 'not found')}\n" for n in sorted([*names, UNKNOWN])]
    assert (tmp_path / "found/forgotten.txt").read_text() == "".join(lines)
    for path in (tmp_path / "found").rglob("*"):
        if path.is_file() and path.name != ".lock":
            assert "black coffee" not in path.read_text(errors="replace"), path


@pytest.mark.parametrize("name", ["read", "normal", "kept"])
def test_each_state_of_a_text_names_the_document(tmp_path, name):
    whole = write_lines(tmp_path / "whole.jsonl", TEXTS)
    flags = ["--pii=replace"]
    text = "Write to a.b@c.org, cafe\u0301 Noir"
    states = {"read": text, "normal": text.replace("e\u0301", "\u00e9")}
    states["kept"] = states["normal"].replace("a.b@c.org", "<email>")
    more = write_lines(tmp_path / "more.jsonl", [*TEXTS, text])
    found = build(more, tmp_path / "found", *flags, listed(tmp_path, digest(states[name])))
    due = build(whole, tmp_path / "due", *flags)
    assert content(tmp_path / "found") == content(tmp_path / "due")
    assert found.stats.dropped == {**due.stats.dropped, "forgotten": 1}
    assert found.stats.observed == due.stats.observed


def test_what_repeated_paragraphs_leave_names_the_document(tmp_path):
    menu = "Home | News | About us"
    texts = [f"{menu}\n\nThis is page {n} of the site" for n in range(5)]
    source = write_lines(tmp_path / "pages.jsonl", [*texts, "another page"])
    flags = ["--duplicate_paragraphs=paragraph:2"]
    kept = texts_of(build(source, tmp_path / "before", *flags))
    cut = next(text for text in kept if text.startswith("This is page"))
    found = build(source, tmp_path / "found", *flags, listed(tmp_path, digest(cut)))
    assert texts_of(found) == sorted({*kept} - {cut})
    assert found.stats.dropped == {"forgotten": 1}
    assert found.stats.funnel.removed["forgotten"].samples == ()
    assert found.stats.broken_equations() == []


def test_a_different_list_is_a_different_corpus(tmp_path):
    source = write_lines(tmp_path / "source.jsonl", TEXTS)
    first = build(source, tmp_path / "corpus", listed(tmp_path, digest(TEXTS[0])))
    again = build(source, tmp_path / "corpus", listed(tmp_path, digest(TEXTS[0]), digest(TEXTS[0])))
    assert again.schema == first.schema
    with pytest.raises(UsageError, match="forget_sha256"):
        build(source, tmp_path / "corpus", listed(tmp_path, digest(TEXTS[1])))


def build_set(source, directory, *flags):
    build_shards.main(
        [
            *(f"--input={source}", f"--output={directory}", f"--tokenizer={KEPT / 'bpe'}"),
            *("--splits=train:0.8,validation:0.2", "--num_shards=train:2,validation:1"),
            *("--max_length=32", *flags),
        ]
    )
    return read_dataset(str(directory))


def write_others(tmp_path, *gone):
    """The input of datasets without the documents that have these texts; its path."""
    lines = (HERE / "inputs" / "documents.jsonl").read_text().splitlines(keepends=True)
    path = tmp_path / "others.jsonl"
    path.write_text("".join(line for line in lines if json.loads(line)["text"] not in gone))
    return path


def test_runs_on_prism_forget(prism, tmp_path):
    """A worker process reads the list: of a corpus in two steps, and of a dataset."""
    source = write_lines(tmp_path / "source.jsonl", TEXTS)
    flags = ["--num_files=2", "--near_duplicates=jaccard:0.8", listed(tmp_path, digest(CUT))]
    for directory, more in (("here", []), ("prism", prism)):
        build(source, tmp_path / directory, *flags, *more)
    assert content(tmp_path / "prism") == content(tmp_path / "here")
    assert found_in(tmp_path / "prism") == found_in(tmp_path / "here") == {digest(CUT): "1"}
    flags = ["--task=clm", listed(tmp_path, digest(SECOND), UNKNOWN)]
    build_set(HERE / "inputs/documents.jsonl", tmp_path / "found", *flags, *prism)
    build_set(write_others(tmp_path, SECOND), tmp_path / "due", "--task=clm")
    assert content(tmp_path / "found") == content(tmp_path / "due")
    assert found_in(tmp_path / "found") == {digest(SECOND): "1", UNKNOWN: "not found"}


def test_a_resumed_run_forgets(tmp_path, written, monkeypatch):
    """Finished shards serve a run of the same list, and no run of another."""
    source, output = HERE / "inputs/documents.jsonl", tmp_path / "found"
    flags = ["--task=clm", "--resume", listed(tmp_path, digest(SECOND))]

    def die(*_):
        raise DataError("the disk went away")

    with monkeypatch.context() as patch:
        patch.setattr(shard_files, "publish", die)
        with pytest.raises(DataError, match="went away"):
            build_set(source, output, *flags)
    assert len(written) == 3
    build_set(source, output, *flags)
    assert len(written) == 3 and found_in(output) == {digest(SECOND): "1"}
    build_set(write_others(tmp_path, SECOND), tmp_path / "due", "--task=clm")
    assert content(output) == content(tmp_path / "due")
    with monkeypatch.context() as patch:
        patch.setattr(shard_files, "publish", die)
        with pytest.raises(DataError, match="went away"):
            build_set(source, tmp_path / "other", "--task=clm", "--resume")
    written.clear()
    build_set(source, tmp_path / "other", *flags)
    assert len(written) == 3 and content(tmp_path / "other") == content(output)


@pytest.mark.parametrize("kind", ["gs", pytest.param("s3", marks=pytest.mark.slow)])
def test_lists_and_outputs_in_object_stores(kind, tmp_path, request):
    store = request.getfixturevalue(f"{kind}_store")
    store.put("list.txt", f"{digest(CUT)}\r\n{digest(SECOND)}\r\n".encode())
    forget = f"--forget={store.url('list.txt')}"
    source = write_lines(tmp_path / "source.jsonl", TEXTS)
    build(source, store.url("corpus"), "--num_files=2", forget)
    build_set(HERE / "inputs/documents.jsonl", store.url("set"), "--task=clm", forget)
    others = write_lines(tmp_path / "other.jsonl", [text for text in TEXTS if text != CUT])
    build(others, tmp_path / "corpus", "--num_files=2")
    build_set(write_others(tmp_path, SECOND), tmp_path / "set", "--task=clm")
    counts = {"corpus": {digest(CUT): "1"}, "set": {digest(SECOND): "1"}}
    for name in ("corpus", "set"):
        made = {path: store.get(f"{name}/{path}") for path in content(tmp_path / name)}
        assert made == content(tmp_path / name)
        (tmp_path / f"{name}/forgotten.txt").write_bytes(store.get(f"{name}/forgotten.txt"))
        due = {digest(CUT): "not found", digest(SECOND): "not found"} | counts[name]
        assert found_in(tmp_path / name) == due
        assert not store.names(f"{name}/.staging")


def test_a_dataset_is_as_if_it_had_never_read_them(tmp_path):
    lines = (HERE / "inputs" / "documents.jsonl").read_text().splitlines(keepends=True)
    texts = [json.loads(line)["text"] for line in lines]
    gone = {texts[2], texts[5]}
    others = tmp_path / "others.jsonl"
    others.write_text("".join(line for line, t in zip(lines, texts, strict=True) if t not in gone))
    names = sorted(map(digest, gone))
    forget = listed(tmp_path, *names, UNKNOWN)
    found = build_set(HERE / "inputs/documents.jsonl", tmp_path / "found", "--task=clm", forget)
    due = build_set(others, tmp_path / "due", "--task=clm")
    assert content(tmp_path / "found") == content(tmp_path / "due")
    number = sum(text in gone for text in texts)
    assert found.stats.dropped == {**due.stats.dropped, "forgotten": number}
    assert found.stats.documents_read == due.stats.documents_read + number
    assert found.stats.shards == due.stats.shards
    counts = {name: sum(digest(text) == name for text in texts) for name in names}
    lines = [f"{n}  # {counts.get(n, 'not found')}\n" for n in sorted([*names, UNKNOWN])]
    assert (tmp_path / "found/forgotten.txt").read_text() == "".join(lines)
