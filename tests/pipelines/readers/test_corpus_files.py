"""A corpus as the --input of build_shards and train_tokenizer."""

import json

import pytest

from pipelines import build_corpus, build_shards, train_tokenizer
from pipelines.corpus.metadata import read_corpus
from pipelines.readers.corpus_files import find_corpus
from schemas.errors import DataError, UsageError
from schemas.metadata import read_set

TEXTS = [
    f"Document {n} says {'this and ' * (n % 7)}that, in so many words {n * n}." for n in range(90)
]
SHORT = [f"short {n}" for n in range(9)]


def write(path, texts):
    lines = (json.dumps({"text": text, "label": str(len(text) % 2)}) + "\n" for text in texts)
    path.write_text("".join(lines))
    return path


@pytest.fixture
def corpus(tmp_path):
    """TEXTS, in three files, beside what a rule dropped."""
    source, output = write(tmp_path / "raw.jsonl", [*TEXTS, *SHORT]), tmp_path / "corpus"
    flags = ["--min_chars=20", "--keep_rejects", "--keep_fields=label", "--num_files=3"]
    build_corpus.main([f"--input={source}", f"--output={output}", *flags])
    return output


def build(tokenizer_path, output, *flags):
    own = [f"--tokenizer={tokenizer_path}", f"--output={output}", "--num_shards=2"]
    build_shards.main([*own, "--max_length=64", *flags])
    return read_set(str(output))


def shards(info):
    return {file.path: file.sha256 for file in info.manifest.files if file.split}


@pytest.mark.parametrize("file_format", ["parquet", "jsonl"])
def test_shards_of_a_corpus_are_those_of_its_texts(tokenizer_path, tmp_path, file_format):
    source = write(tmp_path / "raw.jsonl", [*TEXTS, *SHORT])
    clean = write(tmp_path / "clean.jsonl", TEXTS)
    corpus = tmp_path / "corpus"
    flags = ["--min_chars=20", "--keep_rejects", "--num_files=3", f"--file_format={file_format}"]
    build_corpus.main([f"--input={source}", f"--output={corpus}", *flags])
    made = build(tokenizer_path, tmp_path / "set", f"--input={corpus}")
    plain = build(tokenizer_path, tmp_path / "plain", f"--input={clean}")
    assert shards(made) == shards(plain)
    assert made.stats.documents_read == len(TEXTS)  # and nothing of rejects/
    found = read_corpus(str(corpus))
    assert made.schema.parameters["corpus"] == [found.schema.fingerprint]
    assert made.schema.parameters["normalize"] == "nfc"
    assert "corpus" not in plain.schema.parameters


def test_a_corpus_beside_other_inputs_and_in_a_list(corpus, tokenizer_path, tmp_path):
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
    labels = ["--task=classification", f"--input={corpus}"]
    info = build(tokenizer_path, tmp_path / "labels", *labels)
    assert info.schema.parameters["classes"] == ["0", "1"]


def test_a_tokenizer_of_a_corpus_is_that_of_its_texts(corpus, tmp_path):
    reports = []
    for name, source in (("made", corpus), ("plain", write(tmp_path / "clean.jsonl", TEXTS))):
        output = tmp_path / name
        train_tokenizer.main([f"--input={source}", f"--output={output}", "--vocab_size=300"])
        reports.append(json.loads((output / "report.json").read_text()))
    assert reports[0]["histogram_sha256"] == reports[1]["histogram_sha256"]
    fingerprint = read_corpus(str(corpus)).schema.fingerprint
    assert reports[0]["parameters"]["corpus"] == [fingerprint]
    assert "corpus" not in reports[1]["parameters"]


def test_a_field_that_the_corpus_lacks_is_refused(corpus, tokenizer_path, tmp_path):
    with pytest.raises(UsageError, match="--text_field=body: .* no such field; it has id, text, l"):
        build(tokenizer_path, tmp_path / "set", f"--input={corpus}", "--text_field=body")


def test_a_field_within_an_object_may_be_kept_as_a_column(tokenizer_path, tmp_path):
    lines = (f'{{"text": "Text {n}.", "meta": {{"label": "{n % 2}"}}}}\n' for n in range(20))
    (tmp_path / "raw.jsonl").write_text("".join(lines))
    corpus = tmp_path / "corpus"
    flags = [f"--input={tmp_path / 'raw.jsonl'}", f"--output={corpus}", "--keep_fields=meta.label"]
    build_corpus.main(flags)
    labels = ["--task=classification", "--label_field=meta.label", f"--input={corpus}"]
    info = build(tokenizer_path, tmp_path / "set", *labels)
    assert info.stats.total().labels == {"0": 10, "1": 10}


def flip(path, place=200):
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


DAMAGE = {
    "a changed file": (lambda c: flip(c / "documents-00001-of-00003.parquet"), "was changed after"),
    "a lost file": (lambda c: (c / "documents-00000-of-00003.parquet").unlink(), "is missing"),
    "another manifest": (lambda c: flip(c / "MANIFEST.json"), "MANIFEST.json"),
}


@pytest.mark.parametrize(("damage", "said"), DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_corpus_is_refused(corpus, tokenizer_path, tmp_path, damage, said):
    damage(corpus)
    with pytest.raises(DataError, match=said):
        build(tokenizer_path, tmp_path / "set", f"--input={corpus}")
    assert not (tmp_path / "set" / "MANIFEST.json").exists()


def test_what_is_no_corpus_is_none(tokenizer_path, corpus, tmp_path):
    build(tokenizer_path, tmp_path / "set", f"--input={corpus}")
    patterns = [tmp_path / "set", tmp_path, tmp_path / "raw.jsonl", tmp_path / "*", "gs://b/a.txt"]
    assert [find_corpus(str(pattern)) for pattern in patterns] == [None] * 5
