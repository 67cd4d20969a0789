"""Documents of a corpus by hash, against a pass over all of it."""

import pytest
import xxhash

from tests.tools.corpus_factory import build, write_lines
from textmill.schemas.errors import DataError
from textmill.trainers.use.corpus_texts import CorpusTexts

DOCUMENTS = [
    {
        "text": f"The {number}th page of the book has some words, not many, about {number}.",
        "url": f"https://example.org/{number}",
    }
    for number in range(40)
]


@pytest.mark.parametrize("file_format", ["parquet", "jsonl"])
def test_each_document_is_found(tmp_path, file_format, monkeypatch):
    """In three files, of several row groups each."""
    monkeypatch.setattr("textmill.pipelines.corpus.partition_files._GROUP_BYTES", 400)
    lines = write_lines(tmp_path / "pages.jsonl", DOCUMENTS)
    flags = ("--keep_fields=url", "--num_files=3", f"--file_format={file_format}")
    build(lines, tmp_path / "corpus", *flags)
    due = {xxhash.xxh3_128_digest(document["text"].encode()): document for document in DOCUMENTS}
    corpus = CorpusTexts(str(tmp_path / "corpus"))
    assert corpus.find([*due, bytes(16), b"\xff" * 16]) == due
    for digest, document in due.items():
        assert corpus.find([digest]) == {digest: document}
    assert corpus.find([]) == {}
    path = max((tmp_path / "corpus").glob("documents-*"), key=lambda path: path.stat().st_size)
    path.write_bytes(path.read_bytes()[::-1])
    with pytest.raises(DataError, match="copy or build the corpus again"):
        corpus.find(due)
