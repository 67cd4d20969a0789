"""Values of --input: directories, globs, lists, label folders, and files in an object store."""

import bz2
import gzip
import io
import lzma
import os

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from tests.tools.read_sources import LABELED, read_all, rows_of, sizes_of, texts_of
from textmill.pipelines.readers.documents import TEXT_ROLES, Role
from textmill.pipelines.readers.files import FileFinder
from textmill.pipelines.readers.sources import Source, hash_inputs, plan_blocks
from textmill.schemas.errors import DataError, UsageError


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
    found = (FileFinder(label_folders=label_folders).find(str(folder / p)) for p in patterns)
    return sorted({os.path.relpath(path, folder) for files in found for path, _ in files})


def test_a_directory_gives_its_files_of_known_kinds(files):
    folder = files(
        "d/b.txt", "d/a.JSONL.gz", "d/e/c.csv.zst", "d/e/f/g.parquet", "d/x.py", "d/y.parquet.gz"
    )
    files("d/.hidden.txt", "d/.cache/z.txt", "d/_SUCCESS", "other/o.txt")
    expected = ["d/a.JSONL.gz", "d/b.txt", "d/e/c.csv.zst", "d/e/f/g.parquet"]
    assert names_of(folder, "d") == names_of(folder, "d/") == expected
    files("saved/state.json", "saved/data.arrow", "saved/README.md")
    with pytest.raises(UsageError, match=r"a saved Hugging Face dataset: give hf:.*saved"):
        names_of(folder, "saved")
    with pytest.raises(DataError, match="matches folders only"):
        names_of(folder, "d/e/*f")
    (folder / "empty").mkdir()
    with pytest.raises(DataError, match=r"empty: a folder without files to read; .*\.jsonl"):
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
    """Through a link to a folder above it, a link to it, a different spelling, and twice."""
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
        FileFinder().find(str(files() / pattern))


def test_a_list_names_what_input_names(files, monkeypatch):
    folder = files("d/a.txt", "d/b.txt", "d/c d.txt", "e/f.txt", "#g.txt")
    lines = ["# the corpus", "d/[ab].txt", "", "  # more", "d/c d.txt\r", "./#g.txt", "e"]
    (folder / "list.txt").write_text("\ufeff" + "\n".join(lines))
    monkeypatch.chdir(folder)
    found = [os.path.normpath(path) for path, _ in sizes_of("@list.txt")]
    assert found == ["#g.txt", "d/a.txt", "d/b.txt", "d/c d.txt", "e/f.txt"]
    for content, message in (
        ("# nothing\n", "--input=@bad.txt: the list names no file"),
        ("@list.txt", "--input=@bad.txt: the list names another list"),
        ("nowhere.txt", "--input=nowhere.txt: no file matches"),
        ("a\0b", "--input=@bad.txt: not a list of paths"),
    ):
        (folder / "bad.txt").write_text(content)
        with pytest.raises(DataError, match=message):
            sizes_of("@bad.txt")
    os.mkfifo("fifo")
    for name, message in (
        ("no.txt", r"--input=@no\.txt: cannot open no\.txt"),
        ("fifo", "--input=@fifo: fifo is not a regular file"),
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
    with pytest.raises(UsageError, match=r"urls_pos\.txt\) are beside folders .*\(neg, pos\)"):
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
    with pytest.raises(DataError, match="--input=memory://b/out.*: no file matches"):
        sizes_of("memory://b/out")
    with pytest.raises(UsageError, match="odd://b/x.*: no package reads odd://"):
        sizes_of("odd://b/x")
    with pytest.raises(UsageError, match=r"memory://b/i\*\*: \*\* matches whole folders"):
        sizes_of("memory://b/i**")
    store.rm("/b", recursive=True)


LINE = b'{"text": "%s"}\n'


PACKERS = {
    "": lambda content: content,
    ".gz": gzip.compress,
    ".gzip": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.compress,
    ".zstd": zstandard.compress,
    ".lz4": lambda content: pa.compress(content, "lz4", asbytes=True),
}


@pytest.mark.parametrize("ending", [".jsonl", ".jsonlines", ".ndjson", ".jl", ".json"])
@pytest.mark.parametrize("packing", PACKERS)
def test_every_ending_of_json_lines_is_read_in_a_folder(tmp_path, capsys, ending, packing):
    (tmp_path / f"a{ending}{packing}").write_bytes(PACKERS[packing](LINE % b"a"))
    assert texts_of(read_all(tmp_path)) == ["a"]
    assert capsys.readouterr().err == ""


# Names in a folder `d`, documents that are read of it, and what the note has; "" for no note.
FOLDERS = {
    "as DCLM ships": (["d/a.jsonl.zstd"], 1, ""),
    "an ending in capitals": (["d/a.JSONLINES"], 1, ""),
    "an unknown ending": (
        ["d/a.jsonl", "d/b.xyz"],
        *(1, "1 file of unknown format was not read (d/b.xyz): name such a file, or rename it"),
    ),
    "several": (
        ["d/a.jsonl", "d/b.xyz", "d/README.md", "d/e/part-00000", "d/e/part-00001"],
        1,
        "4 files of unknown format were not read (d/README.md, d/b.xyz, d/e/part-00000, ...): "
        "name such a file, or rename it",
    ),
    "a packed table": (
        ["d/a.jsonl", "d/b.parquet.gz"],
        1,
        "1 file of unknown format was not read (d/b.parquet.gz): name such a file, or rename it",
    ),
    "what Spark leaves": (["d/a.jsonl", "d/_SUCCESS", "d/.a.jsonl.crc", "d/_metadata"], 1, ""),
    "an empty file": (["d/a.jsonl", "d/empty*"], 1, ""),
    "what Spark has not finished": (
        ["d/a.jsonl", "d/_temporary/0/b.jsonl"],
        *(1, "1 name that begins with _ was not read (d/_temporary): name it to read it"),
    ),
    "a log of Delta Lake": (
        ["d/a.jsonl", "d/_delta_log/000.json", "d/_delta_log/001.json"],
        *(1, "1 name that begins with _ was not read (d/_delta_log): name it to read it"),
    ),
    "a file with _": (
        ["d/a.jsonl", "d/_b.jsonl"],
        *(1, "1 name that begins with _ was not read (d/_b.jsonl): name it to read it"),
    ),
    "hidden": (["d/a.jsonl", "d/.b.jsonl", "d/.git/c.jsonl", "d/.x.xyz"], 1, ""),
}


@pytest.mark.parametrize(("names", "documents", "note"), FOLDERS.values(), ids=FOLDERS)
@pytest.mark.parametrize("place", ["disk", "store"])
def test_what_is_not_read_of_a_folder_is_said(
    tmp_path, monkeypatch, capsys, names, documents, note, place
):
    monkeypatch.chdir(tmp_path)
    store = fsspec.filesystem("memory")
    for name in names:
        content = b"" if name.endswith("*") else LINE % name.encode()
        if ".zst" in name:
            content = zstandard.compress(content)
        if place == "disk":
            os.makedirs(os.path.dirname(name), exist_ok=True)
            (tmp_path / name).write_bytes(content)
        else:
            store.pipe(f"/odd/{name}", content)
    url = "memory://odd/"
    try:
        assert len(texts_of(read_all("d" if place == "disk" else f"{url}d"))) == documents
    finally:
        if place == "store":
            store.rm("/odd", recursive=True)
    assert capsys.readouterr().err.replace(url, "") == (f"note: {note}\n" if note else "")


def test_private_names_are_read_where_a_pattern_names_them(files, capsys):
    folder = files("d/_x/a.jsonl", "d/_b.jsonl", "d/c.jsonl", "d/_x/_y/e.jsonl")
    assert names_of(folder, "d/_x") == names_of(folder, "d/_*/*.jsonl") == ["d/_x/a.jsonl"]
    assert names_of(folder, "d/_b.jsonl") == ["d/_b.jsonl"]
    assert names_of(folder, "d/*.jsonl") == ["d/_b.jsonl", "d/c.jsonl"]
    assert names_of(folder, "d/**/*.jsonl") == ["d/_b.jsonl", "d/c.jsonl"]
    store = fsspec.filesystem("memory")
    for path in folder.rglob("*.jsonl"):
        store.pipe(f"/odd/{path.relative_to(folder)}", b"x")
    url = "memory://odd/d/"

    def found(pattern):
        return [path.removeprefix(url) for path, _ in FileFinder().find(url + pattern)]

    assert found("_x") == found("_*/*.jsonl") == ["_x/a.jsonl"]
    assert found("*.jsonl") == found("**/*.jsonl") == ["_b.jsonl", "c.jsonl"]
    store.rm("/odd", recursive=True)


def test_names_without_an_ending_are_read_in_a_given_format(tmp_path):
    for name in ("part-00000", "part-00001.gz", "notes.md"):
        content = LINE % name.encode()
        (tmp_path / name).write_bytes(gzip.compress(content) if "gz" in name else content)
    found = texts_of(read_all(tmp_path, input_format="jsonl"))
    assert found == ["part-00000", "part-00001.gz"]
    with pytest.raises(DataError, match=r"without files to read; .*; 3 files of unknown format"):
        read_all(tmp_path)


@pytest.fixture
def linked(tmp_path, monkeypatch):
    """A folder `d` with links out of it, and one inside."""
    monkeypatch.chdir(tmp_path)
    for name in ("secret/s.jsonl", "d/a.jsonl", "d/.store/b.jsonl"):
        os.makedirs(os.path.dirname(name), exist_ok=True)
        (tmp_path / name).write_bytes(LINE % name.encode())
    os.symlink("../secret/s.jsonl", "d/out.jsonl")
    os.symlink("../secret", "d/outs")
    os.symlink(".store/b.jsonl", "d/in.jsonl")
    os.symlink("../d", "d/loop")
    os.symlink("nowhere", "d/broken.xyz")
    os.symlink("d", "e")


INSIDE = ["d/.store/b.jsonl", "d/a.jsonl"]
NOT_READ = "link out of its folder was not read (d/out.jsonl): give --follow_links if you trust it"
LINKS = {
    "a folder": (["d"], INSIDE, "2 links out of its folder were not read (d/out.jsonl, d/outs): "),
    "a folder by a link": (["e"], INSIDE, "2 links out of its folder were not read (e/out"),
    "a glob": (["d/*.jsonl"], INSIDE, f"1 {NOT_READ}"),
    "a glob of folders": (
        *(["d/**/*.jsonl"], INSIDE),
        "2 links out of its folder were not read (d/out.jsonl, d/outs/s.jsonl): ",
    ),
    "a list": (["@list.txt"], INSIDE, f"1 {NOT_READ}"),
    "a link that is named": (["d/out.jsonl"], ["secret/s.jsonl"], ""),
    "links in braces": (["d/{a,out}.jsonl"], ["d/a.jsonl", "secret/s.jsonl"], ""),
    "a folder behind a named link": (["d/outs"], ["secret/s.jsonl"], ""),
}


@pytest.mark.parametrize(("patterns", "texts", "note"), LINKS.values(), ids=LINKS)
@pytest.mark.usefixtures("linked")
def test_links_out_of_a_folder_are_followed_only_where_asked(capsys, patterns, texts, note):
    with open("list.txt", "w") as file:
        file.write("d/*.jsonl\n")
    assert sorted(texts_of(read_all(*patterns))) == texts
    said = capsys.readouterr().err
    assert said.startswith(f"note: {note}") if note else not said
    found = sorted(texts_of(read_all(*patterns, follow_links=True)))
    assert found == sorted({*texts, "secret/s.jsonl"})
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("linked")
def test_a_folder_of_links_out_of_it_names_the_flag():
    os.mkdir("f")
    os.symlink("../secret/s.jsonl", "f/x.jsonl")
    for pattern in ("f", "f/*"):
        with pytest.raises(DataError, match=r"1 link out .* \(f/x\.jsonl\): give --follow_links"):
            read_all(pattern)
    assert texts_of(read_all("f", follow_links=True)) == ["secret/s.jsonl"]


def test_a_corpus_in_a_folder_is_named(files, capsys):
    folder = files("d/a.txt", "d/corpus/MANIFEST.json", "d/tokens/tokenizer.json")
    files("d/corpus/documents-00000-of-00001.parquet")
    assert len(read_all(folder / "d")) == 1
    note = f"1 corpus in a folder was not read ({folder}/d/corpus): name it to read it"
    assert capsys.readouterr().err == f"note: {note}\n"
