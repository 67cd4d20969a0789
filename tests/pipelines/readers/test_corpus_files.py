"""A corpus as the --input of build_shards and train_tokenizer."""

import json
import os
import shutil
from collections import Counter

import pytest

from tests.tools.corpus_damage import correct_sums
from textmill.pipelines import build_corpus, build_shards, train_tokenizer, verify
from textmill.pipelines.readers.corpus_files import find_corpus
from textmill.schemas.errors import DataError, UsageError
from textmill.schemas.files.finished import Corpus, open_finished, read_dataset

TEXTS = [
    f"Document {n} says {'this and ' * (n % 7)}that, in so many words {n * n}." for n in range(90)
]
SHORT = [f"short {n}" for n in range(9)]


def write(path, texts):
    records = ({"text": text, "meta": {"label": str(len(text) % 2)}} for text in texts)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


@pytest.fixture(scope="module", params=["parquet"])
def corpus(request, tmp_path_factory):
    """TEXTS, in three files, beside what a rule dropped."""
    source = write(tmp_path_factory.mktemp("corpora") / "raw.jsonl", [*TEXTS, *SHORT])
    output = source.with_name("corpus")
    flags = ["--min_chars=20", "--keep_rejects", "--keep_fields=meta.label", "--num_files=3"]
    flags += [f"--file_format={request.param}"]
    build_corpus.main([f"--input={source}", f"--output={output}", *flags])
    return output


def build(tokenizer_path, output, *flags):
    own = [f"--tokenizer={tokenizer_path}", f"--output={output}", "--num_shards=2"]
    build_shards.main([*own, "--max_length=64", *flags])
    return read_dataset(str(output))


def shards(info):
    return {file.path: file.sha256 for file in info.manifest.files if file.split}


@pytest.mark.parametrize("corpus", ["parquet", "jsonl"], indirect=True)
def test_shards_and_a_tokenizer_of_a_corpus_are_those_of_its_texts(
    corpus, tokenizer_path, tmp_path
):
    sources = {"made": corpus, "plain": write(tmp_path / "clean.jsonl", TEXTS)}
    made, plain = (build(tokenizer_path, tmp_path / k, f"--input={v}") for k, v in sources.items())
    assert shards(made) == shards(plain)
    assert made.stats.documents_read == len(TEXTS)  # and nothing of rejects/
    fingerprint = open_finished(Corpus, str(corpus)).schema.fingerprint
    assert made.schema.parameters["corpus"] == [fingerprint]
    assert made.schema.parameters["normalize"] == "nfc"
    assert "corpus" not in plain.schema.parameters
    reports, histograms = [], set()
    for name, source in sources.items():
        output = tmp_path / f"{name} tokenizer"
        train_tokenizer.main([f"--input={source}", f"--output={output}", "--vocab_size=300"])
        reports.append(json.loads((output / "report.json").read_text()))
        histograms.add((output / "histogram.parquet").read_bytes())
    assert len(histograms) == 1
    assert reports[0]["parameters"]["corpus"] == [fingerprint]
    assert "corpus" not in reports[1]["parameters"]
    others = [tmp_path / "made", corpus.parent, corpus.parent / "raw.jsonl", corpus.parent / "*"]
    assert [find_corpus(str(other)) for other in (*others, "gs://b/a.txt")] == [None] * 5


def test_a_corpus_beside_other_inputs_in_a_list_and_its_fields(corpus, tokenizer_path, tmp_path):
    more = write(tmp_path / "more.jsonl", ["Another document.", "And one more."])
    listed = tmp_path / "inputs.txt"
    listed.write_text(f"{corpus}\n{more}\n")
    one = build(tokenizer_path, tmp_path / "one", f"--input={corpus}", f"--input={more}")
    two = build(tokenizer_path, tmp_path / "two", f"--input=@{listed}")
    assert one.stats.documents_read == len(TEXTS) + 2
    assert one.schema == two.schema and shards(one) == shards(two)
    assert "normalize" not in one.schema.parameters  # some texts are in no normal form
    given = [f"--train_input={corpus}", f"--test_input={more}"]
    info = build(tokenizer_path, tmp_path / "given", *given)
    assert info.schema.parameters["corpus"] == one.schema.parameters["corpus"]
    labels = ["--task=classification", "--label_field=meta.label", f"--input={corpus}"]
    found = build(tokenizer_path, tmp_path / "labels", *labels).stats.total().labels
    assert found == Counter(str(len(text) % 2) for text in TEXTS)
    with pytest.raises(UsageError, match="=body: .* no such field; it has id, text, meta.label"):
        build(tokenizer_path, tmp_path / "set", f"--input={corpus}", "--text_field=body")


def flip(path, place=200):
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def replace(path, make):
    path.unlink()
    make(path)


def lead_out(path):
    """The same bytes, elsewhere."""
    outside = shutil.copy(path, path.parents[1] / "outside")
    replace(path, lambda link: link.symlink_to(outside))


def change(corpus, name, **values):
    """Other values of a metadata file, under sums that are right."""
    content = json.loads((corpus / name).read_text())
    content |= values
    (corpus / name).write_text(json.dumps(content))
    correct_sums(corpus)


def become_null(corpus):
    (corpus / "schema.json").write_text("null")
    correct_sums(corpus)


FIRST = "documents-00000-of-00003.parquet"
DAMAGE = {
    "a link out": (lambda c: lead_out(c / FIRST), f"{FIRST} is a link out of its directory"),
    "a metadata link": (lambda c: lead_out(c / "stats.json"), "stats.json is a link out of its"),
    "a manifest link": (lambda c: lead_out(c / "MANIFEST.json"), "MANIFEST.json is a link out of"),
    "a pipe": (lambda c: replace(c / FIRST, os.mkfifo), f"{FIRST} is not a regular"),
    "a metadata pipe": (lambda c: replace(c / "stats.json", os.mkfifo), "json is not a regular"),
    "a manifest pipe": (lambda c: replace(c / "MANIFEST.json", os.mkfifo), "MANIFEST.json"),
    "a folder": (lambda c: replace(c / FIRST, os.mkdir), f"{FIRST} is not a regular"),
    "a device": (lambda c: replace(c / FIRST, lambda p: p.symlink_to("/dev/zero")), "link out of"),
    "a huge manifest": (lambda c: os.truncate(c / "MANIFEST.json", 3 << 30), "ends in NUL bytes"),
    "null": (become_null, "schema.json is None, not of type dict"),
    "odd columns": (
        lambda c: change(c, "schema.json", columns=["id", 5]),
        r"columns\[1\] is 5, not",
    ),
    "other columns": (lambda c: change(c, "schema.json", columns=["a"]), "must begin with id"),
    "an odd form": (lambda c: change(c, "schema.json", parameters={"normalize": [1]}), "normalize"),
    "other counts": (lambda c: change(c, "stats.json", documents_read=7), "documents read minus"),
    "odd inputs": (lambda c: change(c, "inputs.json", files=[5]), r"files\[0\] is 5, not of type"),
    "a changed file": (lambda c: flip(c / "documents-00001-of-00003.parquet"), "was changed after"),
    "a lost file": (lambda c: (c / "documents-00000-of-00003.parquet").unlink(), "is missing"),
    "another manifest": (lambda c: flip(c / "MANIFEST.json"), "MANIFEST.json"),
}


@pytest.mark.parametrize(("damage", "said"), DAMAGE.values(), ids=DAMAGE)
@pytest.mark.timeout(60)
def test_a_damaged_corpus_is_refused(corpus, tokenizer_path, tmp_path, damage, said):
    damaged = shutil.copytree(corpus, tmp_path / "corpus")
    damage(damaged)
    with pytest.raises(DataError, match=said):
        build(tokenizer_path, tmp_path / "set", f"--input={damaged}")
    assert not (tmp_path / "set" / "MANIFEST.json").exists()
    with pytest.raises(DataError):
        verify.main([str(damaged)])


def test_links_of_a_corpus_are_followed_on_request_and_inside(
    corpus, tokenizer_path, tmp_path, capsys
):
    copy = shutil.copytree(corpus, tmp_path / "corpus")
    (copy / FIRST).rename(copy / ".first")
    (copy / FIRST).symlink_to(".first")
    (tmp_path / "link").symlink_to(copy)
    assert find_corpus(str(tmp_path / "link")) is not None
    lead_out(copy / "stats.json")
    assert find_corpus(str(copy), follow_links=True) is not None
    capsys.readouterr()
    build(tokenizer_path, tmp_path / "set", f"--input={copy}", "--follow_links")
    capsys.readouterr()
    verify.main([str(copy), "--follow_links"])
    assert capsys.readouterr().out.startswith("ok: 1 corpus, 90 documents, ")
