"""Every document of a mixed corpus has the ids of `tokenizers`, with vocabularies as published.

The vocabularies come from packages of the index; `tests.tools.published_tokenizers` says which.
"""

import json
import os
from itertools import islice

import pytest
from tokenizers import Tokenizer

from pipelines.encoding.word_table import WordTableBackend
from tests.benchmarks.corpora import unpacked
from tests.benchmarks.measure import CannotRun
from tests.stress.fuzz_encoding import backend_of, different, draw_texts
from tests.tools.places import DATA, ROOT
from tests.tools.published_tokenizers import PUBLISHED, write_published


def mixed_corpus(topics):
    """Documents in English, Norwegian and Python, hard strings, and code points one by one."""
    yield from topics
    for path in sorted(ROOT.glob("*/*.py")):
        yield path.read_text(encoding="utf-8")
    if not DATA.exists():
        return
    for line in unpacked("norec/valid.jsonl.zst").splitlines():
        yield json.loads(line)["text"]
    for article in json.loads(unpacked("squad/dev-v1.1.json.zst"))["data"]:
        for paragraph in article["paragraphs"]:
            yield paragraph["context"]
    yield from json.loads((DATA / "hard" / "blns.json").read_text(encoding="utf-8"))
    for name in ("utf8tests", "bmp-separated", "sup-unseparated"):
        text = (DATA / "hard" / f"{name}.txt").read_bytes().decode("utf-8", "replace")
        yield from (text[start : start + 20_000] for start in range(0, len(text), 20_000))


@pytest.mark.slow
@pytest.mark.parametrize("name", PUBLISHED)
def test_equal_on_a_mixed_corpus(name, topics, tmp_path):
    try:
        path = write_published(name, tmp_path / "tokenizer.json")
    except CannotRun as error:
        assert "CI" not in os.environ, error
        pytest.skip(f"the packages with published vocabularies cannot be installed: {error}")
    tokenizer = Tokenizer.from_file(str(path))
    backend = backend_of(tokenizer)
    assert isinstance(backend, WordTableBackend)
    assert different(backend, tokenizer, list(mixed_corpus(topics))) == []
    assert different(backend, tokenizer, list(islice(draw_texts(tokenizer, 6), 500))) == []
