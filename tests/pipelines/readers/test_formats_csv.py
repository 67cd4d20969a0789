"""CSV and TSV: whose newlines end records, what is refused, and what is an error."""

import csv
import gzip
import io

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.tools.read_sources import read_all, rejects_of, rows_of
from textmill.pipelines.readers.documents import Role
from textmill.pipelines.readers.formats.delimited import DIALECTS, RecordEnds
from textmill.pipelines.readers.sources import Source, plan_blocks
from textmill.schemas.errors import DataError, UsageError

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
    ends = RecordEnds(DIALECTS["csv"], 0)
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


pieces_of_tsv = st.lists(
    st.sampled_from(["a", "é", '"', '""', "\t", "\t", "\n", "\r\n", "\r", '"x y"', "\0", "\ufeff"])
)


@given(pieces_of_tsv, st.integers(1, 12), st.sampled_from(["x.tsv", "x.csv"]))
def test_without_quoting_records_are_those_of_pythons_reader(
    tmp_path_factory, parts, block_bytes, name
):
    delimiter = "\t" if name == "x.tsv" else ","
    text = ("a\tb\n" + "".join(parts)).replace("\t", delimiter)
    path = tmp_path_factory.mktemp("x") / name
    path.write_bytes(text.encode())
    lines = io.StringIO(text, newline="")
    reader = csv.reader(lines, delimiter=delimiter, quoting=csv.QUOTE_NONE)
    records = [row for row in reader if row][1:]
    good = [row for row in records if len(row) == 2]
    expected = (
        [tuple(row) for row in good if row[0]],
        [(i, "ragged_row") for i, row in enumerate(records) if len(row) != 2],
        sum(not row[0] for row in good),
    )
    quoting = "auto" if name == "x.tsv" else "none"
    assert found_in(read_csv(path, block_bytes=block_bytes, quoting=quoting)) == expected
    packed = path.with_name(f"{name}.gz")
    packed.write_bytes(gzip.compress(text.encode()))
    assert found_in(read_csv(packed, block_bytes=block_bytes, quoting=quoting)) == expected


# Content with its fields a and b, --quoting, and documents; "" for no warning, or its beginning.
LONE = b'a\tb\n"Hello there, she said\t1\nsecond\t2\n5" wide\t3\n"Quoted\t4\nnearly" the end\t5\n'
LONE_ROWS = [
    *(('"Hello there, she said', "1"), ("second", "2"), ('5" wide', "3")),
    *(('"Quoted', "4"), ('nearly" the end', "5")),
]
SPANS = "1 quoted field spans lines and goes on after the closing quote, the first at byte 4"
QUOTINGS = {
    "TSV with lone quotes": ("x.tsv", LONE, "auto", LONE_ROWS, ""),
    "a lone quote in the last field": ("x.tsv", b'a\tb\n1\t"x\n2\ty\n', "auto", 2, ""),
    "CSV with lone quotes": ("x.csv", LONE.replace(b"\t", b","), "none", 4, ""),
    "the same with quoting": (
        *("x.csv", b'a,b\n"Hi, she said\n2,5" wide,1\n', "auto"),
        *([("Hi, she said\n2,5 wide", "1")], SPANS),
    ),
    "and in lines that end CR": (
        *("x.csv", b'a,b\r"Hi\r2,5"" w" wide,1\r', "auto"),
        *([('Hi\r2,5" w wide', "1")], SPANS),
    ),
    "a quoted field of one line that goes on": ("x.csv", b'a,b\n"x"y,1\n', "auto", 1, ""),
    "a quoted field of two lines": ("x.csv", b'a,b\n"x\ny",1\n"",2\n', "auto", 1, ""),
    "a doubled quote before a newline": ("x.csv", b'a,b\n"x""\ny""",1\n', "auto", 1, ""),
    "TSV as pandas writes it": (
        *("x.tsv", b'a\tb\n"say ""hi"""\t1\n2\t"3\t4"\n""\tb\n', "auto"),
        *(2, "2 fields are enclosed in quotes, the first at byte 4"),
    ),
    "the same with quoting, in TSV": (
        *("x.tsv", b'a\tb\n"say ""hi"""\t1\n2\t"3\t4"\n', "double"),
        *([('say "hi"', "1"), ("2", "3\t4")], ""),
    ),
    "a single quote as a field": ("x.tsv", b'a\tb\n"\t"x\n', "auto", [('"', '"x')], ""),
}


@pytest.mark.parametrize(
    ("name", "content", "quoting", "rows", "warning"), QUOTINGS.values(), ids=QUOTINGS
)
@pytest.mark.parametrize("packed", [False, True])
def test_quotes_are_text_or_enclose_fields(
    tmp_path, capsys, name, content, quoting, rows, warning, packed
):
    path = tmp_path / (name + ".gz" * packed)
    path.write_bytes(gzip.compress(content) if packed else content)
    found = found_in(read_csv(path, quoting=quoting))[0]
    assert (len(found) if isinstance(rows, int) else found) == rows
    said = capsys.readouterr().err
    assert said.startswith(f"warning: {path}: {warning}") if warning else not said


def test_the_warning_about_quotes_counts_files(tmp_path, capsys):
    for number in range(3):
        (tmp_path / f"{number}.csv").write_text('a,b\n"1\n2"3,4\n')
    read_csv(tmp_path)
    assert capsys.readouterr().err == (
        f"warning: {tmp_path}/0.csv (and 2 more files like it): {SPANS}: if quotes are text in "
        "this file, give --quoting=none\n"
    )


def test_a_quoted_header_of_tsv_names_the_flag(tmp_path):
    path = tmp_path / "x.tsv"
    path.write_text('"a"\t"b"\n"1"\t"2"\n')
    with pytest.raises(UsageError, match="no field 'a' but '\"a\"': give --quoting=double"):
        read_csv(path)
    assert found_in(read_csv(path, quoting="double"))[0] == [("1", "2")]
