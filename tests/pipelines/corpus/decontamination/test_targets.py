import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.feather import write_feather

from tests.tools.corpus_factory import write_lines
from textmill.pipelines.corpus.decontamination.target_texts import read_targets
from textmill.pipelines.corpus.rules.decontamination import Decontamination

RECORDS = [
    {"question": "Who is it?", "answers": {"text": ["Ann", "Bob of B"], "answer_start": [1, 2]}},
    {"question": "", "answers": {"text": ["Carl"], "answer_start": [3]}},
    {"question": "Where is it?", "answers": {"text": ["Ann"], "answer_start": [0]}},
]


def read(*paths, fields: Any = "question,answers"):
    targets = read_targets(
        Decontamination(decontaminate=tuple(map(str, paths)), decontaminate_fields=fields)
    )
    return targets, [
        (targets.files[file][0], targets.fields[field], record, text)
        for file, field, record, text in zip(
            targets.file_T, targets.field_T, targets.record_T, targets.text.to_pylist(), strict=True
        )
    ]


WRITERS = {
    "a.jsonl": write_lines,
    "a.parquet": lambda path, rows: pq.write_table(pa.Table.from_pylist(rows), path),
    "a.arrow": lambda path, rows: write_feather(pa.Table.from_pylist(rows), str(path)),
}


@pytest.mark.parametrize(("name", "write"), WRITERS.items())
def test_every_string_in_a_field_is_a_text(name, write, tmp_path):
    path = tmp_path / name
    write(path, RECORDS)
    _, found = read(path)
    at = str(path)
    assert found == [
        (at, "question", 0, "Who is it?"),
        (at, "question", 2, "Where is it?"),
        (at, "answers", 0, "Ann"),
        (at, "answers", 0, "Bob of B"),
        (at, "answers", 1, "Carl"),
    ]


def test_squad_gives_its_questions_where_no_field_is_named(tmp_path):
    path = tmp_path / "dev.json"
    asked = [("Who is it?", "Ann"), ("?", "Carl"), ("Where is it?", "Ann")]
    qas = [
        {"id": q, "question": q, "answers": [{"text": answer, "answer_start": 0}]}
        for q, answer in asked
    ]
    paragraphs = [{"context": "Ann and Carl", "qas": qas}]
    path.write_text(json.dumps({"data": [{"title": "t", "paragraphs": paragraphs}]}))
    assert [text for *_, text in read(path, fields="")[1]] == ["Who is it?", "?", "Where is it?"]
    assert [text for *_, text in read(path, fields="context,answers")[1]] == [
        "Ann and Carl",
        "Ann",
        "Carl",
    ]


def test_lines_of_text_and_fields_of_tables_are_texts(tmp_path):
    (tmp_path / "a.txt").write_text("one line\n\n another\n")
    (tmp_path / "b.csv").write_text('n,text\n1,"said ""so"", 2"\n2,3\n')
    _, found = read(tmp_path / "a.txt", tmp_path / "b.csv", fields="")
    assert sorted(text for *_, text in found) == [" another", "3", "one line", 'said "so", 2']


def test_files_stand_in_an_order_of_their_content(tmp_path):
    for name, text in (("a", "same"), ("b", "same"), ("c", "other"), ("d", "third")):
        write_lines(tmp_path / f"{name}.jsonl", [text])
    given = [tmp_path / f"{name}.jsonl" for name in "abcd"]
    targets, found = read(*given, fields="text")
    again, _ = read(*reversed(given), fields="text")
    assert targets.files == again.files
    assert [sha256 for _, sha256 in targets.files] == sorted({s for _, s in targets.files})
    assert sorted(text for *_, text in found) == ["other", "same", "third"]
    (tmp_path / "list.txt").write_text("".join(f"{path}\n" for path in given))
    assert read(f"@{tmp_path / 'list.txt'}", fields="text")[0].files == targets.files
