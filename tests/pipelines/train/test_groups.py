"""How files make groups."""

from dataclasses import replace

import pytest

from pipelines.readers.sources import Block, Source, plan_blocks
from pipelines.readers.stored import Part
from pipelines.train.fertility import FileGroups, file_groups


def blocks_of(*files: tuple[str, str]) -> list[Block]:
    """A block of files given as (input, path)."""
    return [Block(0, tuple(Part(path, 1, 0, 1, input=given) for given, path in files))]


@pytest.mark.parametrize(
    ("files", "names"),
    [
        ([("c/*", "c/a.txt"), ("c/*", "c/b.txt")], ["all", "all"]),
        ([("c", "c/no/a"), ("c", "c/en/b"), ("c", "c/en/x/c")], ["no", "en", "en"]),
        ([("c", "c/no/a"), ("c", "c/b")], ["no", "."]),
        ([("c", "/c/no/a"), ("c", "/d/no/b")], ["c", "d"]),
        ([("c", "c/n/a"), ("c", "c/nn/b")], ["n", "nn"]),
        ([("gs://b/**", "gs://b/no/a"), ("gs://b/**", "gs://b/en/a")], ["no", "en"]),
        ([("c/no*.txt", "c/no1.txt"), ("c/en.txt", "c/en.txt")], ["no*.txt", "en.txt"]),
        ([("no", "no/a/1"), ("en", "en/b/1"), ("en", "en/a/1")], ["no", "en", "en"]),
        ([("c/", "c/a"), ("c/en", "c/en/a")], ["c/", "en"]),
        ([("gs://b/en", "gs://b/en/a"), ("hf:no", "/h/a.arrow")], ["gs://b/en", "hf:no"]),
    ],
)
def test_names(files, names):
    blocks = blocks_of(*files)
    groups = file_groups(blocks)
    assert [groups.name(part) for part in blocks[0].parts] == names


def test_a_thousand_inputs_or_folders_at_most():
    for files in ([(f"{n}", "a") for n in range(1001)], [("in", f"{n}/a") for n in range(1001)]):
        assert file_groups(blocks_of(*files)) == FileGroups("all")
        assert file_groups(blocks_of(*files[1:])).by != "all"


def test_a_block_is_split_where_groups_change():
    files = [("c", "c/en/a"), ("c", "c/en/b"), ("c", "c/no/a"), ("c", "c/sv/a")]
    [block] = blocks_of(*files)
    split = file_groups([block]).split(replace(block, index=7))
    assert [(name, [part.path for part in own.parts]) for name, own in split] == [
        ("en", ["c/en/a", "c/en/b"]),
        ("no", ["c/no/a"]),
        ("sv", ["c/sv/a"]),
    ]
    assert {own.index for _, own in split} == {7}


def test_the_last_input_that_names_a_file_has_it(tmp_path):
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("text\n")
    listed = tmp_path / "list"
    listed.write_text(f"{tmp_path}/a.txt\n{tmp_path}/b.txt\n")
    [block] = plan_blocks(Source((f"@{listed}", f"{tmp_path}/b.txt")))
    assert [part.input for part in block.parts] == [f"@{listed}", f"{tmp_path}/b.txt"]
