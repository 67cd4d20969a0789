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
    starts = [part.start for part in parts]
    assert [part.stop for part in parts] == [*starts[1:], path.stat().st_size]
    assert [(start - 4) / 8 for start in starts[1:]] == [part.record for part in parts[1:]]


def test_bad_records_are_refused_by_number_and_the_rest_kept(tmp_path):
    path = tmp_path / "x.csv"
    path.write_bytes(b"a,b\n1,2\n3\n\n\xff,5\n,6\n7,\xff,\xe6,\nx,\n10,11\n\xe9,2\n")
    [piece] = read_csv(path, roles=(ROLES[0], Role("label", "label", "b")))
    rejects = [(1, "ragged_row"), (2, "not_utf8"), (4, "ragged_row"), (5, "missing_field")]
    rejects.append((7, "not_utf8"))
    assert found_in([piece]) == ([("1", "2"), ("10", "11")], rejects, 1)
    details = [reject.detail for reject in piece.rejects if reject.reason == "ragged_row"]
    assert details[1] == r"4 fields, but the header has 2: 7,\xff,\xe6,"
    assert piece.read == 8


@pytest.mark.parametrize("block_bytes", [10, 1 << 20])
def test_a_quote_that_is_never_closed_is_an_error_with_its_place(tmp_path, block_bytes):
    path = tmp_path / "x.csv"
    path.write_text('a,b\n1,2\n3,"4\n5,6\n7,8\n')
    with pytest.raises(DataError, match=r"x\.csv: a quote in record 1, .* byte 8, is never closed"):
        read_csv(path, block_bytes=block_bytes)


def test_odd_headers_serve_and_others_are_refused(tmp_path):
    path = tmp_path / "x.csv"
    for content in ('\ufeff"a","c, d",b\r\n1,2,3\r\n', "\n\r\na,b\r1,3\r"):
        path.write_bytes(content.encode())
        assert found_in(read_csv(path))[0] == [("1", "3")]
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
