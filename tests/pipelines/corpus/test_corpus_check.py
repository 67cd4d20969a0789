"""verify finds changes of a corpus, by accident or by someone."""

import hashlib
import json
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.tools.corpus_factory import build, rows_of, write_lines
from textmill.pipelines.corpus.partition import read_rows
from textmill.pipelines.readers.documents import MAX_DOCUMENT_BYTES
from textmill.pipelines.verify import main as verify
from textmill.schemas.errors import DataError
from textmill.schemas.files.finished import read_dataset
from textmill.schemas.format.corpus_metadata import CorpusSchema
from textmill.schemas.format.manifest import Manifest, ManifestFile
from textmill.schemas.typed_json import to_json


@pytest.fixture
def corpus(tmp_path):
    records = [{"text": f"a text about {i} things", "url": f"u{i}"} for i in range(40)]
    source = write_lines(tmp_path / "source.jsonl", records)
    return Path(build(source, tmp_path / "corpus", "--keep_fields=url", "--num_files=2").directory)


def seal(corpus, **rows):
    """Makes sizes, sums and digests of MANIFEST.json those of the files as they are now."""
    values = json.loads((corpus / "MANIFEST.json").read_text())
    files = []
    for file in values["files"]:
        content = (corpus / file["path"]).read_bytes()
        file |= {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        file["rows"] = rows.get(file["path"].split("-of")[0].replace("-", "_"), file["rows"])
        files.append(ManifestFile(**file))
    fingerprint = json.loads((corpus / "schema.json").read_text())["fingerprint"]
    manifest = Manifest(values["format_version"], fingerprint, tuple(files))
    (corpus / "MANIFEST.json").write_bytes(to_json(manifest.to_dict()))


def test_a_whole_corpus_of_many_pieces_is_ok_and_is_no_dataset(corpus, monkeypatch, capsys):
    """Above 1 MiB of text, a file is read in several pieces, of which the last is empty."""
    monkeypatch.setattr("textmill.pipelines.readers.sources._WORTH_A_PIECE", 1)
    path = next(corpus.glob("documents-00000*"))
    pieces = [len(piece.columns) for piece in read_rows(str(path), 1, ("id", "text"))]
    assert pieces[-1] == 0 and len(pieces) > 1
    capsys.readouterr()
    verify([str(corpus)])
    assert capsys.readouterr().out.startswith("ok: 1 corpus, 40 documents, ")
    with pytest.raises(DataError, match="is a corpus, not a dataset: build a dataset from it"):
        read_dataset(str(corpus))


def test_an_edit_may_give_a_document_the_text_of_a_removed_one(tmp_path, capsys):
    words = [f"word{i}" for i in range(200)]
    texts = [" ".join(words), *(f"{n} {words[n]}" for n in range(4))]
    texts = [texts[0], *(f"{text}\n\nthe same footer" for text in texts)]
    source = write_lines(tmp_path / "source.jsonl", texts)
    flags = ["--near_duplicates=jaccard:0.8", "--duplicate_paragraphs=paragraph:2"]
    corpus = build(source, tmp_path / "corpus", *flags)
    removed = pq.read_table(tmp_path / "corpus" / corpus.schema.removed_names()[0])["id"]
    assert removed.to_pylist() == [row["id"] for row in rows_of(corpus) if row["text"] == texts[0]]
    capsys.readouterr()
    verify([corpus.directory])
    assert capsys.readouterr().out.startswith("ok: 1 corpus, 5 documents, ")


@pytest.mark.slow
def test_a_document_of_any_length_is_read(tmp_path):
    path = tmp_path / "documents-00000-of-00001.parquet"
    text = "a" * (MAX_DOCUMENT_BYTES + 1)  # of a run with more --max_document_bytes
    pq.write_table(pa.table({"id": ["0" * 32], "text": [text]}), path)
    assert sum(len(piece.columns) for piece in read_rows(str(path), 1, ("id", "text"))) == 1


def test_every_changed_byte_is_found(corpus):
    rng = random.Random(0)
    for path in sorted(p for p in corpus.iterdir() if p.name not in (".lock", "README.md")):
        content = path.read_bytes()
        for place in rng.sample(range(len(content)), min(len(content), 12)):
            changed = bytearray(content)
            changed[place] ^= 1 << rng.randrange(8)
            path.write_bytes(bytes(changed))
            with pytest.raises(DataError):
                verify([str(corpus)])
        path.write_bytes(content)
    verify([str(corpus)])


def with_column(table, name, values):
    return table.set_column(table.schema.get_field_index(name), name, pa.array(values))


@pytest.mark.parametrize(
    ("words", "change"),
    [
        (
            "an id is not the hash of its text",
            lambda t: with_column(t, "text", ["another", *t["text"].to_pylist()[1:]]),
        ),
        ("not in strictly ascending order", lambda t: t.take(list(range(len(t)))[::-1])),
        ("not the hash of its text", lambda t: with_column(t, "id", ["x" * 31] * len(t))),
        ("has no field 'url'", lambda t: t.drop_columns(["url"])),
        ("MANIFEST.json counts", lambda t: t.slice(1)),
    ],
)
def test_changed_documents_are_found_where_all_sums_are_right(corpus, words, change):
    path = next(corpus.glob("documents-00000*"))
    table = change(pq.read_table(path))
    pq.write_table(table, path)
    seal(corpus, documents_00000=len(table))
    with pytest.raises(DataError, match=words):
        verify([str(corpus)])


@pytest.mark.parametrize(
    "change", [{"files": 3}, {"columns": ("id", "text", "date")}, {"file_format": "jsonl"}]
)
def test_a_schema_of_other_columns_or_files_is_found(corpus, change):
    values = json.loads((corpus / "schema.json").read_text())
    changed = {**values, "columns": tuple(values["columns"]), **change, "fingerprint": ""}
    (corpus / "schema.json").write_bytes(to_json(CorpusSchema(**changed)))
    seal(corpus)
    with pytest.raises(DataError):
        verify([str(corpus)])


def test_a_parquet_bomb_is_refused_in_bounded_memory(corpus):
    path = next(corpus.glob("documents-00000*"))
    rows = 10_000_000
    columns = {"id": pa.repeat("0" * 32, rows), "text": pa.repeat("a", rows)}
    pq.write_table(pa.table({**columns, "url": pa.repeat("u", rows)}), path, compression="zstd")
    assert path.stat().st_size < rows
    seal(corpus, documents_00000=path.stat().st_size)
    with pytest.raises(DataError):
        verify([str(corpus)])


def leaves(values, path=()):
    """Paths of all plain values of parsed JSON."""
    if isinstance(values, dict | list):
        items = values.items() if isinstance(values, dict) else enumerate(values)
        for key, value in items:
            yield from leaves(value, (*path, key))
    else:
        yield path


@pytest.mark.parametrize("section", ["files", "funnel", "lengths", "dropped", "documents_read"])
def test_changed_counts_are_found_where_all_sums_are_right(corpus, section):
    content = (corpus / "stats.json").read_bytes()
    for path in leaves(json.loads(content)[section]) if section != "documents_read" else [()]:
        values = json.loads(content)
        *outer, last = (section, *path)
        inner = values
        for key in outer:
            inner = inner[key]
        inner[last] = inner[last] + 1
        (corpus / "stats.json").write_bytes(to_json(values))
        seal(corpus)
        with pytest.raises(DataError):
            verify([str(corpus)])
