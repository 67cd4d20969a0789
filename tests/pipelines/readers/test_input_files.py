"""Values of --input: directories, globs, lists, label folders, and files in an object store."""

import io
import os

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.readers.documents import TEXT_ROLES, Role
from pipelines.readers.files import find_files
from pipelines.readers.sources import Source, hash_inputs, plan_blocks
from schemas.errors import DataError, UsageError
from tests.tools.read_sources import LABELED, read_all, rows_of, sizes_of, texts_of


@pytest.fixture
def files(tmp_path):
    """Writes empty-looking files of a byte each; returns their folder."""

    def write(*names, content="x\n"):
        for name in names:
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        return tmp_path

    return write


def names_of(folder, *patterns, roles=TEXT_ROLES):
    label_folders = Source(("x",), roles=roles).has_labels
    found = (find_files(str(folder / p), label_folders=label_folders) for p in patterns)
    return sorted({os.path.relpath(path, folder) for files in found for path, _ in files})


def test_a_directory_gives_its_files_of_known_kinds(files):
    folder = files(
        "d/b.txt", "d/a.JSONL.gz", "d/e/c.csv.zst", "d/e/f/g.parquet", "d/x.py", "d/y.parquet.gz"
    )
    files("d/.hidden.txt", "d/.cache/z.txt", "d/_SUCCESS", "other/o.txt")
    expected = ["d/a.JSONL.gz", "d/b.txt", "d/e/c.csv.zst", "d/e/f/g.parquet"]
    assert names_of(folder, "d") == names_of(folder, "d/") == expected
    files("saved/state.json", "saved/data.arrow", "saved/README.md")
    with pytest.raises(UsageError, match=r"a saved Hugging Face dataset: give --input=hf:.*saved"):
        names_of(folder, "saved")
    with pytest.raises(DataError, match="matches folders only"):
        names_of(folder, "d/e/*f")
    (folder / "empty").mkdir()
    with pytest.raises(DataError, match=r"empty is a folder without files to read; .*\.jsonl"):
        names_of(folder, "empty")
    with pytest.raises(UsageError, match="its own compression"):
        read_all(folder / "d/y.parquet.gz")
    with pytest.raises(UsageError, match=r"a text file, which has no field 'b' for the text_pair"):
        read_all(folder / "d/b.txt", roles=(*TEXT_ROLES, Role("text_pair", "string", "b")))


def test_braces_are_alternatives_and_names_stand_as_they_are(files):
    folder = files("pos/1.txt", "neg/2.txt", "unsup/3.txt", "a{b,c}.txt", "ab.txt")
    assert names_of(folder, "{pos,neg}/*.txt") == ["neg/2.txt", "pos/1.txt"]
    assert names_of(folder, "a{b,c}.txt") == ["a{b,c}.txt"]
    assert names_of(folder, "{pos/{1,9},ab}.txt") == ["ab.txt", "pos/1.txt"]
    assert names_of(files("a[1].txt"), "a[1].txt") == ["a[1].txt"]
    assert names_of(folder, "**/1.txt") == names_of(folder, "**/" * 12 + "1.txt") == ["pos/1.txt"]


def test_a_file_is_read_once_however_it_is_named(files, capsys):
    """Through a link to a folder above it, a link to it, another spelling, and twice."""
    folder = files("loop/a.jsonl", "loop/deep/b.jsonl", content='{"text": "x"}\n')
    (folder / "loop/deep/up").symlink_to(folder / "loop")
    (folder / "loop/deep/again").symlink_to(folder / "loop")  # two: 2**40 ways for glob
    (folder / "loop/c.jsonl").symlink_to(folder / "loop/a.jsonl")
    once = [str(folder / "loop/a.jsonl"), str(folder / "loop/deep/b.jsonl")]

    def found(*patterns):
        return [path for path, _ in sizes_of(*patterns)]

    assert found(f"{folder}/loop/**/*.jsonl") == found(f"{folder}/**/loop/**") == once
    assert found(f"{folder}/loop") == once
    assert found(once[0], once[1]) == once
    assert capsys.readouterr().err == ""
    assert found(once[0], f"{folder}/loop/../loop/a.jsonl", once[0]) == once[:1]
    note = (
        f"note: reading {folder}/loop/../loop/a.jsonl once, though --input names it more than once"
    )
    assert capsys.readouterr().err == f"{note}\n"


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("{a,b}" * 30, "expands to more than 10,000 patterns"),
        ("{a,b}/" * 5000, "expands to more than 10,000 patterns"),
        ("**/a/" * 12 + "*", r"more than 3 \*\*"),
    ],
)
def test_patterns_of_endless_search_are_refused(files, pattern, said):
    with pytest.raises(UsageError, match=said):
        find_files(str(files() / pattern), label_folders=False)


def test_a_list_names_what_input_names(files, monkeypatch):
    folder = files("d/a.txt", "d/b.txt", "d/c d.txt", "e/f.txt", "#g.txt")
    lines = ["# the corpus", "d/[ab].txt", "", "  # more", "d/c d.txt\r", "./#g.txt", "e"]
    (folder / "list.txt").write_text("\ufeff" + "\n".join(lines))
    monkeypatch.chdir(folder)
    found = [os.path.normpath(path) for path, _ in sizes_of("@list.txt")]
    assert found == ["#g.txt", "d/a.txt", "d/b.txt", "d/c d.txt", "e/f.txt"]
    for content, message in (
        ("# nothing\n", "names no file"),
        ("@list.txt", "names another list"),
        ("nowhere.txt", "no file matches --input=nowhere.txt"),
        ("a\0b", "no list of paths"),
    ):
        (folder / "bad.txt").write_text(content)
        with pytest.raises(DataError, match=message):
            sizes_of("@bad.txt")
    os.mkfifo("fifo")
    for name, message in (
        ("no.txt", r"cannot open no\.txt"),
        ("fifo", "is not a regular file"),
        ("d", "Is a directory"),
    ):
        with pytest.raises(DataError, match=message):
            sizes_of(f"@{name}")


def test_folders_are_labels_and_files_documents(files):
    folder = files("train/pos/1_9.txt", content="good\n\nvery good\n")
    files("train/neg/2_1.txt", content="bad")
    expected = [
        {"text": "bad", "label": "neg"},
        {"text": "good\n\nvery good\n", "label": "pos"},
    ]
    for pattern in ("train", "train/*/*.txt", "train/{pos,neg}/*.txt"):
        assert rows_of(read_all(str(folder / pattern), roles=LABELED)) == expected
    assert rows_of(read_all(str(folder / "train/pos"), roles=LABELED)) == expected[1:]
    (folder / "train/neg/link.txt").symlink_to(folder / "train/pos/1_9.txt")
    assert len(sizes_of(folder / "train", roles=LABELED)) == 3  # another label, another document
    files("train/urls_pos.txt")
    with pytest.raises(UsageError, match=r"urls_pos\.txt\) beside folders .*\(neg, pos\)"):
        names_of(folder, "train", roles=LABELED)
    assert len(names_of(folder, "train")) == 3  # without labels a link is the file that it names


def test_a_store_is_read_as_a_disk_is():
    sink = io.BytesIO()
    pq.write_table(pa.table({"text": ["d", "e"], "n": [1, 2]}), sink, row_group_size=1)
    store = fsspec.filesystem("memory")
    store.pipe(
        {
            "/b/in/a.txt": b"a\nb\n",
            "/b/in/deep/c.csv": b"text\nc\n" * 9,
            "/b/in/p.parquet": sink.getvalue(),
            "/b/in/.hidden.txt": b"no",
            "/b/in/x.py": b"no",
        }
    )
    source = Source(("memory://b/in/",), "line", block_bytes=20)
    found = texts_of(read_all("memory://b/in/", document="line", block_bytes=20))
    assert found == ["a", "b", *"c text".split() * 8, "c", "d", "e"]
    assert len(hash_inputs(plan_blocks(source)).files) == 3
    assert sizes_of("memory://b/in/*.{txt,parquet}") == [
        ("memory://b/in/a.txt", 4),
        ("memory://b/in/p.parquet", len(sink.getvalue())),
    ]
    assert sizes_of("memory://b/**/[cp].*") == [
        ("memory://b/in/deep/c.csv", 63),
        ("memory://b/in/p.parquet", len(sink.getvalue())),
    ]
    with pytest.raises(DataError, match="no file matches --input=memory://b/out"):
        sizes_of("memory://b/out")
    with pytest.raises(UsageError, match="odd://b/x.*: no package reads odd://"):
        sizes_of("odd://b/x")
    with pytest.raises(UsageError, match=r"memory://b/i\*\*: \*\* matches whole folders"):
        sizes_of("memory://b/i**")
    store.rm("/b", recursive=True)
