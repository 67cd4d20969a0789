"""verify --absent finds listed documents wherever a corpus has them or names them."""

import pytest
from xxhash import xxh3_128_hexdigest

from tests.tools.corpus_factory import QUESTIONS, build, write_lines
from textmill.pipelines.corpus.corpus_search import search_corpus
from textmill.pipelines.verify import main as verify
from textmill.schemas.errors import DataError
from textmill.schemas.format.digests import Digests

WORDS = [f"word{n}" for n in range(200)]
LONG, NEAR = " ".join(WORDS), " ".join([*WORDS[:-1], "other"])
OTHERS = [f"a text about {n} things" for n in range(12)]
SHORT, ASKED = "too short", f"They said: {QUESTIONS[0]} Nobody knew."
UNKNOWN = "nobody wrote this"


def digest(text):
    return xxh3_128_hexdigest(text.encode())


def find(corpus, *texts):
    listed = Digests(bytes.fromhex("".join(map(digest, texts))))
    return search_corpus(corpus.directory, listed).problems


@pytest.fixture(scope="module", params=["keep_rejects", "bare"])
def corpus(request, tmp_path_factory):
    """A corpus with removed, filtered and contaminated documents, with and without their text."""
    folder = tmp_path_factory.mktemp("corpora")
    source = write_lines(folder / "source.jsonl", [*OTHERS, LONG, NEAR, SHORT, ASKED])
    asked = write_lines(folder / "asked.jsonl", QUESTIONS)
    flags = ["--near_duplicates=jaccard:0.8", "--min_words=4", f"--decontaminate={asked}"]
    flags += ["--num_files=1"]
    more = ["--keep_rejects"] * (request.param == "keep_rejects")
    return build(source, folder / "corpus", *flags, *more)


def test_a_document_that_is_kept(corpus):
    number = sorted(map(digest, [*OTHERS, min(LONG, NEAR, key=digest)])).index(digest(OTHERS[5]))
    assert find(corpus, OTHERS[5], UNKNOWN) == [
        f"documents-00000-of-00001.parquet: document {digest(OTHERS[5])} at record {number}"
    ]
    assert find(corpus, UNKNOWN) == []


def test_near_duplicates_of_which_one_is_removed(corpus):
    kept, gone = sorted([LONG, NEAR], key=digest)
    place = "removed/near_duplicates-00000-of-00001.parquet"
    assert find(corpus, gone) == [
        f"{place}: document {digest(gone)} at record 0",
        f"stats.json: document {digest(gone)} in a sample of near_duplicates",
    ]
    document, *others = find(corpus, kept)
    assert document.startswith("documents-00000-of-00001.parquet: document ")
    assert others == [
        f"{place}: document {digest(kept)} at record 0",
        f"stats.json: document {digest(kept)} in a sample of near_duplicates",
    ]


def test_documents_that_rules_dropped(corpus):
    has_text = corpus.lists("rejects/filtered.jsonl")
    for text, reason in ((SHORT, "min_words"), (ASKED, "contaminated")):
        found = find(corpus, text)
        filtered = [one for one in found if one.startswith("rejects/filtered.jsonl: document ")]
        listed = [one for one in found if one.startswith("rejects/contamination.jsonl: document ")]
        assert len(filtered) == has_text and len(listed) == (text == ASKED)
        assert found[len(filtered) + len(listed) :] == [
            f"stats.json: document {digest(text)} in a sample of {reason}"
        ]


def test_json_lines_and_the_command(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    source = write_lines(tmp_path / "source.jsonl", OTHERS)
    corpus = build(source, tmp_path / "corpus", "--file_format=jsonl", "--num_files=2")
    path = tmp_path / "list.txt"
    path.write_text(digest(UNKNOWN))
    capsys.readouterr()
    verify([corpus.directory, f"--absent={path}"])
    assert capsys.readouterr().out.startswith("ok: 1 corpus, 12 documents, ")
    path.write_text(f"{digest(UNKNOWN)}\n{digest(OTHERS[0])}\n")
    with pytest.raises(DataError) as error:
        verify([corpus.directory, f"--absent={path}"])
    first, second = str(error.value).splitlines()
    assert first.endswith(f"without the documents of --absent={path}, 1 problem:")
    assert f".jsonl.zst: document {digest(OTHERS[0])} at byte " in second


def test_what_forget_leaves_has_none_of_them(tmp_path, monkeypatch):
    """Also not in forgotten.txt, which names them without their text."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    source = write_lines(tmp_path / "source.jsonl", [*OTHERS, LONG, NEAR, SHORT, ASKED])
    path = tmp_path / "list.txt"
    path.write_text("\n".join(map(digest, [OTHERS[0], LONG, NEAR, SHORT, ASKED])))
    flags = ["--near_duplicates=jaccard:0.8", "--min_words=4", "--keep_rejects"]
    corpus = build(source, tmp_path / "corpus", *flags, f"--forget={path}")
    assert corpus.lists("forgotten.txt")
    verify([corpus.directory, f"--absent={path}"])


def test_a_line_that_cannot_be_read_proves_nothing(tmp_path):
    source = write_lines(tmp_path / "source.jsonl", [*OTHERS, SHORT])
    corpus = build(source, tmp_path / "corpus", "--min_words=4", "--keep_rejects")
    path = tmp_path / "corpus/rejects/filtered.jsonl"
    path.write_bytes(path.read_bytes().replace(b'{"', b"[}", 1))
    with pytest.raises(DataError, match=f"{path} at byte 0 cannot be searched: "):
        find(corpus, UNKNOWN)
