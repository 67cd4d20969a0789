"""CSV: whose newlines end records, what is refused, and what is an error."""

import csv
import gzip
import io

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pipelines.readers.documents import Role
from pipelines.readers.formats.delimited import RecordEnds
from pipelines.readers.sources import Source, plan_blocks
from schemas.errors import DataError, UsageError
from tests.tools.read_sources import read_all, rejects_of, rows_of

ROLES = (Role("text", "string", "a"), Role("text_pair", "string", "b"))


def read_csv(path, **settings):
    return read_all(path, **{"roles": ROLES, **settings})


def found_in(pieces):
    rows = [tuple(row.values()) for row in rows_of(pieces)]
    return rows, rejects_of(pieces), sum(piece.empty for piece in pieces)


pieces_of_csv = st.lists(
    st.sampled_from(
        ["a", "é", '"', '""', ",", ",", "\n", "\r\n", "\r", " ", '"x\ny"', "\0", "\ufeff"]
    )
)


@example(["\ufeffa,1\n", "\ufeffb,2\n"], 1)
@given(pieces_of_csv, st.integers(1, 12))
def test_records_are_those_of_pythons_reader_however_a_file_is_cut(
    tmp_path_factory, parts, block_bytes
):
    text = "a,b\n" + "".join(parts)
    path = tmp_path_factory.mktemp("x") / "x.csv"
    path.write_bytes(text.encode())
    ends = RecordEnds("csv", 0)
    ends.scan(text.encode(), 0)
    if ends.is_quoted:
        with pytest.raises(DataError, match="is never closed"):
            read_csv(path, block_bytes=block_bytes)
        return
    records = [row for row in csv.reader(io.StringIO(text, newline="")) if row][1:]
    good = [(i, row) for i, row in enumerate(records) if len(row) == 2]
    expected = (
        [tuple(row) for _, row in good if row[0]],
        [(i, "ragged_row") for i, row in enumerate(records) if len(row) != 2],
        sum(not row[0] for _, row in good),
    )
    pieces = read_csv(path, block_bytes=block_bytes)
    assert found_in(pieces) == expected
    offsets = [offset for piece in pieces for offset in piece.offsets.tolist()]
    assert offsets == [i for i, row in good if row[0]]
    packed = path.with_name("x.csv.gz")
    packed.write_bytes(gzip.compress(text.encode()))
    assert found_in(read_csv(packed, block_bytes=block_bytes)) == expected


def test_large_files_are_cut_between_records(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("a,b\n" + 'x,"1\n2"\n' * 1000)
    blocks = plan_blocks(Source((str(path),), roles=ROLES, block_bytes=1000))
    parts = [part for block in blocks for part in block.parts]
    assert len(parts) == 8
    assert parts[0].start == 0 and parts[-1].stop == path.stat().st_size
    assert all(
        a.stop == b.start and (b.start - 4) % 8 == 0
        for a, b in zip(parts[:-1], parts[1:], strict=True)
    )
    assert [(part.start - 4) // 8 for part in parts[1:]] == [part.record for part in parts[1:]]
    assert found_in(read_csv(path, block_bytes=1000))[0] == [("x", "1\n2")] * 1000


def test_a_byte_order_mark_and_odd_headers(tmp_path):
    path = tmp_path / "x.csv"
    path.write_bytes('\ufeff"a","c, d",b\r\n1,2,3\r\n'.encode())
    assert found_in(read_csv(path))[0] == [("1", "3")]
    path.write_bytes(b"\n\r\na,b\r1,3\r")
    assert found_in(read_csv(path))[0] == [("1", "3")]


def test_bad_records_are_refused_by_number_and_the_rest_kept(tmp_path):
    path = tmp_path / "x.csv"
    path.write_bytes(b"a,b\n1,2\n3\n\n\xff,5\n,6\n7,8,9\n10,11\n")
    [piece] = read_csv(path)
    rejects = [(1, "ragged_row"), (2, "not_utf8"), (4, "ragged_row")]
    assert found_in([piece]) == ([("1", "2"), ("10", "11")], rejects, 1)
    assert piece.rejects[2].detail == "3 fields, but the header has 2: 7,8,9"
    assert piece.read == 6


def test_records_of_another_number_of_fields_may_hold_any_bytes(tmp_path):
    path = tmp_path / "x.csv"
    path.write_bytes("a,b\né,2\n\xff,æ,\n3,ø\n".encode("latin-1") + "å,1\n".encode())
    [piece] = read_csv(path)
    assert found_in([piece])[0] == [("å", "1")]
    assert rejects_of([piece]) == [(0, "not_utf8"), (1, "ragged_row"), (2, "not_utf8")]
    assert piece.rejects[1].detail == r"3 fields, but the header has 2: \xff,\xe6,"


@pytest.mark.parametrize("block_bytes", [10, 1 << 20])
def test_a_quote_that_is_never_closed_is_an_error_with_its_place(tmp_path, block_bytes):
    path = tmp_path / "x.csv"
    path.write_text('a,b\n1,2\n3,"4\n5,6\n7,8\n')
    with pytest.raises(DataError, match=r"x\.csv: a quote in record 1, .* byte 8, is never closed"):
        read_csv(path, block_bytes=block_bytes)


def test_headers_that_cannot_serve_are_refused(tmp_path):
    path = tmp_path / "x.csv"
    for content, error, message in (
        (b"\n\n", DataError, "no header row"),
        (b"a\xff,b\n", DataError, "header row is not UTF-8 at byte 1"),
        (b"a,b,a\n1,2,3\n", UsageError, "2 columns are 'a'"),
        (b"b,c\n1,2\n", UsageError, "no field 'a', which --text_field names; .*: b, c"),
        (b'"a,b\n1,2\n', DataError, "never closed"),
        (b"a" * (3 << 20), DataError, "the header row does not end"),
    ):
        path.write_bytes(content)
        with pytest.raises(error, match=message):
            read_csv(path)


def test_labels_and_ids_may_not_be_empty(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("a,l\nx,1\ny,\n")
    found = found_in(read_csv(path, roles=(ROLES[0], Role("label", "label", "l"))))
    assert found == ([("x", "1")], [(1, "missing_field")], 0)
