"""WARC and WET files: fields by hand, records beside warcio's, damage, and what is not a page."""

import gzip
import zlib

import pyarrow as pa
import pytest
import zstandard
from warcio.archiveiterator import ArchiveIterator

from tests.tools.read_sources import read_all, rejects_of, rows_of, texts_of
from textmill.pipelines.readers.documents import Role
from textmill.pipelines.readers.html_text import NO_PAGES, Extraction
from textmill.pipelines.readers.sources import Source, hash_inputs, plan_blocks
from textmill.schemas.errors import DataError, UsageError

FIELDS = ("text", "url", "date", "id", "content_type", "title")
ROLES = tuple(
    Role(name, "string" if name == "text" else "id", name, optional=name != "text")
    for name in FIELDS
)
PAGE = "<html><head><title>T {0}</title></head><body><p>Page {0} says blåbær.</p></body></html>"
RESPONSE = "application/http; msgtype=response"
HTML = ("Content-Type", "text/html; charset=utf-8")


def read_warc(path, **settings):
    return read_all(path, **{"roles": ROLES, "extraction": Extraction("all"), **settings})


def texts(path, **settings):
    return texts_of(read_warc(path, **settings))


def write(path, responses):
    """A file as Common Crawl writes it, a gzip member a record, of (status, headers, body)."""
    records = [("warcinfo", "", "application/warc-fields", b"software: a test\r\n")]
    for number, (status, headers, body) in enumerate(responses):
        url = f"http://example.com/{number}"
        request = "application/http; msgtype=request"
        records.append(("request", url, request, b"GET / HTTP/1.1\r\n\r\n"))
        lines = "\r\n".join(f"{name}: {value}" for name, value in headers)
        records.append(("response", url, RESPONSE, response(body, lines, f"HTTP/1.1 {status}")))
    path.write_bytes(b"".join(gzip.compress(record) for record in by_hand(*records)))
    return path


def pages(*numbers):
    return [("200 OK", [HTML], PAGE.format(n).encode()) for n in numbers]


def by_hand(*records, version="WARC/1.0"):
    """Records of a WARC file: (type, url, content type, content)."""
    made = []
    for number, (kind, url, content_type, content) in enumerate(records):
        head = (
            f"{version}\r\nWARC-Type: {kind}\r\nWARC-Target-URI: {url}\r\n"
            f"WARC-Date: 2024-05-18T01:58:{number:02}Z\r\nWARC-Record-ID: <urn:uuid:{number}>\r\n"
            f"Content-Type: {content_type}\r\nContent-Length: {len(content)}\r\n\r\n"
        )
        made.append(head.encode() + content + b"\r\n\r\n")
    return made


def write_records(path, *records):
    path.write_bytes(b"".join(by_hand(*records)))


def conversion(content):
    return ("conversion", "u", "text/plain", content)


def response(body, headers="Content-Type: text/html", status="HTTP/1.1 200 OK"):
    return f"{status}\r\n{headers}\r\n\r\n".encode() + body


def test_fields_of_a_response_and_of_a_conversion(tmp_path):
    page = b"<title> A\n page </title><p>Hello <b>there</b>"
    path = tmp_path / "x.warc"
    write_records(
        path,
        ("warcinfo", "", "application/warc-fields", b"a: b\r\n"),
        ("response", "<http://a/>", RESPONSE, response(page)),
        ("request", "http://a/", "application/http", b"GET / HTTP/1.1\r\n\r\n"),
        ("conversion", "http://b/", "text/plain", "Grüße\n\nan alle\n".encode()),
        ("metadata", "http://b/", "application/warc-fields", b"x: y"),
    )
    [docs] = read_warc(path)
    date = "2024-05-18T01:58:0"
    assert [tuple(row.values()) for row in docs.columns.to_pylist()] == [
        ("Hello there", "http://a/", f"{date}1Z", "<urn:uuid:1>", "text/html", "A page"),
        ("Grüße\n\nan alle\n", "http://b/", f"{date}3Z", "<urn:uuid:3>", "text/plain", ""),
    ]
    assert docs.columns.schema.names == list(FIELDS)
    assert docs.offsets.tolist() == [1, 3]
    assert (docs.read, docs.empty, docs.rejects, docs.unusable) == (2, 0, (), {})
    assert docs.files == ((str(path), "record", 2),)


def test_records_are_those_of_warcio(tmp_path):
    path = write(tmp_path / "x.warc.gz", pages(*range(30)))
    found = rows_of(read_warc(path))
    with open(path, "rb") as file:
        responses = [record for record in ArchiveIterator(file) if record.rec_type == "response"]
    heads = ("WARC-Target-URI", "WARC-Date", "WARC-Record-ID")
    expected = [
        (*map(r.rec_headers.get_header, heads), r.http_headers.get_header("Content-Type"), f"T {n}")
        for n, r in enumerate(responses)
    ]
    assert [tuple(row[name] for name in FIELDS[1:]) for row in found] == expected
    assert [row["text"] for row in found] == [f"Page {n} says blåbær." for n in range(30)]


@pytest.mark.parametrize("end", ["warc", "warc.gz", "warc.zst", "warc.wet", "warc.wet.gz"])
def test_every_ending_and_any_blocks_give_the_same_documents(tmp_path, end):
    plain = b"".join(by_hand(*(conversion(b"text %d" % n) for n in (1, 2))))
    pack = {"gz": gzip.compress, "zst": zstandard.ZstdCompressor().compress}
    path = tmp_path / f"x.{end}"
    path.write_bytes(pack.get(end.rpartition(".")[2], bytes)(plain))
    for size in (1, 7, 100, 1 << 20):
        assert texts(path, block_bytes=size) == ["text 1", "text 2"]
        source = Source((str(path),), roles=ROLES, extraction=Extraction("all"), block_bytes=size)
        digests = [d for docs in read_warc(path, block_bytes=size) for d in docs.digests]
        [file] = hash_inputs(plan_blocks(source)).files
        assert len(digests) == 1 and digests[0][:2] == (file.path, file.bytes)


def test_a_folder_is_searched_for_pages_where_they_are_meant(tmp_path):
    write(tmp_path / "x.warc.gz", pages(1))
    (tmp_path / "y.html").write_text(PAGE.format(2))
    (tmp_path / "z.txt").write_text("plain")
    text = (ROLES[0],)
    assert texts(tmp_path, roles=text) == ["Page 1 says blåbær.", "Page 2 says blåbær.", "plain"]
    assert texts(tmp_path, roles=text, extraction=NO_PAGES) == ["plain"]
    with pytest.raises(UsageError, match=r"x\.warc\.gz holds web pages .*build_corpus"):
        read_warc(tmp_path / "x.warc.gz", extraction=NO_PAGES)
    with pytest.raises(UsageError, match="'body'.*content_type, date, id, license, robots, tdm"):
        read_warc(tmp_path / "x.warc.gz", roles=(Role("text", "string", "body"),))


def test_what_is_no_page_is_counted_by_reason(tmp_path):
    png, json = b"\x89PNG\r\n\x1a\n" + bytes(50), b'{"a": [1, 2]}'
    path = write(
        tmp_path / "x.warc.gz",
        [
            *pages(1),
            ("404 Not Found", [HTML], b"<p>not there"),
            ("301 Moved", [HTML], b""),
            ("200 OK", [("Content-Type", "image/png")], png),
            ("200 OK", [HTML], png),
            ("200 OK", [("Content-Type", "application/json")], json),
            ("200 OK", [HTML], json),
            ("200 OK", [("Content-Type", "application/pdf")], b"%PDF-1.7"),
            ("200 OK", [HTML], b"%PDF-1.7 ..."),
            ("200 OK", [HTML], b"<html><body></body></html>"),
            ("200 OK", [("Content-Type", "text/plain")], b"plain words"),
            ("200 OK", [], b"<!DOCTYPE html><p>no type"),
            ("200 OK", [("Content-Type", "text/css")], b"p {color: red}"),
        ],
    )
    [docs] = read_warc(path)
    assert docs.text.to_pylist() == ["Page 1 says blåbær.", "plain words", "no type"]
    assert docs.unusable == {"http_status": 2, "not_html": 7}
    assert (docs.empty, docs.rejects, docs.read) == (1, (), 13)
    assert docs.dropped == {"http_status": 2, "not_html": 7, "empty": 1}


CODINGS = ["gzip", "gzip, members", "deflate", "deflate, raw", "br", "zstd", "x-unknown"]


@pytest.mark.parametrize("coding", [*CODINGS, "gzip, chunked"])
def test_bodies_are_unpacked(tmp_path, coding):
    body = PAGE.format(7).encode()
    packed = {
        "gzip": gzip.compress,
        "gzip, chunked": gzip.compress,
        "gzip, members": lambda data: gzip.compress(data[:9]) + gzip.compress(data[9:]),
        "deflate": zlib.compress,
        "deflate, raw": lambda data: zlib.compress(data)[2:-4],
        "zstd": zstandard.ZstdCompressor().compress,
        "br": lambda data: pa.compress(data, "brotli", asbytes=True),
    }.get(coding, bytes)(body)
    headers = [HTML, ("Content-Encoding", coding.partition(",")[0])]
    if "chunked" in coding:
        headers.append(("Transfer-Encoding", "chunked"))
        cut = (packed[:9], packed[9:])
        packed = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in cut) + b"0\r\n\r\n"
    # Crawlers that unpack bodies keep the headers all the same.
    for payload in (packed, body):
        assert texts(write(tmp_path / "x.warc.gz", [("200 OK", headers, payload)])) == [
            "Page 7 says blåbær."
        ]


def test_a_small_body_that_unpacks_to_a_large_one_is_refused(tmp_path):
    bomb = gzip.compress(bytes(1 << 24))
    headers = [HTML, ("Content-Encoding", "gzip")]
    path = write(tmp_path / "x.warc.gz", [*pages(1), ("200 OK", headers, bomb), *pages(2)])
    [docs] = read_warc(path, max_document_bytes=1 << 20)
    assert len(docs.text) == 2
    assert [(r.reason, r.offset, r.unit) for r in docs.rejects] == [("too_long", 4, "record")]


def test_records_that_are_too_long_not_utf8_or_no_http_are_counted(tmp_path):
    long, path = b"x" * 5000, tmp_path / "x.warc"
    write_records(
        path,
        conversion(long),
        ("response", "u", RESPONSE, response(b"<p>" + long)),
        ("response", "u", RESPONSE, response(long, "Content-Type: video/mp4")),
        conversion(b"\xff no UTF-8"),
        conversion(b"a font: \0\1\2\3\4\5 words"),
        ("response", "dns:a", "text/dns", b"20240518 a 10.0.0.1"),
        conversion(b"short"),
    )
    [docs] = read_warc(path, max_document_bytes=1000)
    assert docs.text.to_pylist() == ["short"]
    assert rejects_of([docs]) == [(0, "too_long"), (1, "too_long"), (3, "not_utf8")]
    assert docs.unusable == {"not_html": 2, "not_http": 1}


def test_a_file_of_any_size_comes_in_pieces_of_a_block(tmp_path):
    path = write(tmp_path / "x.warc.gz", pages(*range(200)) * 5)
    pieces = read_warc(path, block_bytes=1 << 14)  # of which joined pieces are about
    assert sum(len(piece.text) for piece in pieces) == 1000
    assert len(pieces) > 20 and max(piece.source_bytes for piece in pieces) < 1 << 16
    assert sum(piece.stored_bytes for piece in pieces) == path.stat().st_size
    places = [place for piece in pieces for place in piece.offsets.tolist()]
    assert places == list(range(2, 2002, 2))  # after a warcinfo, every second record


def test_no_record_of_a_damaged_plain_file_vanishes(tmp_path):
    path = tmp_path / "x.warc"
    made = by_hand(*(conversion(b"text %d" % n) for n in (1, 2, 3)))
    whole, ends = b"".join(made), [len(b"".join(made[: n + 1])) for n in range(3)]
    for size in range(1, len(whole)):
        path.write_bytes(whole[:size])
        # The empty lines after a record's content are not needed to read it.
        complete = [end for end in ends if size >= end - 4]
        if complete and size <= complete[-1]:
            assert texts(path) == ["text 1", "text 2", "text 3"][: len(complete)]
        else:
            with pytest.raises(DataError, match=r"x\.warc"):
                read_warc(path)
    for at in range(len(whole)):
        for bit in (0, 4):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :])
            try:
                read = sum(docs.read for docs in read_warc(path))
            except DataError as error:
                assert "\n" not in str(error) and path.name in str(error)
            else:
                in_type = b"WARC-Type: conversion" in whole[max(at - 25, 0) : at + 25]
                assert read == 3 or (in_type and read < 3), (at, bit)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ((b"Content-Length: 6", b"Content-Length: 5"), r"record 1, at byte \d+ .*begins with"),
        ((b"Content-Length: 6", b"Content-Length: x"), "Content-Length 'x'"),
        ((b"Content-Length", b"Content-Lenght"), "Content-Length ''"),
        ((b"WARC-Type", b"WARC-Tyqe"), "no WARC-Type"),
        ((b"\r\n\r\ntext 1", b"\r\ntext 1"), "Content-Length|begins with|without an end"),
    ],
)
def test_damage_is_named_with_its_record(tmp_path, change, message):
    path = tmp_path / "x.warc"
    made = by_hand(*(conversion(b"text %d" % n) for n in (1, 2, 3)))
    path.write_bytes(made[0].replace(*change) + b"".join(made[1:]))
    with pytest.raises(DataError, match=message):
        read_warc(path)


def test_a_text_file_that_holds_records_is_refused(tmp_path):
    path = tmp_path / "x.txt"
    write_records(path, conversion(b"text"))
    path.rename(tmp_path / "y.warc")
    for content in (b"".join(by_hand(conversion(b"text"))), b"WARC/1.0\r\n" + b"W\0A\0" * 99):
        path.write_bytes(content)  # the second could be UTF-16 as well
        with pytest.raises(DataError, match="is a WARC file, not text"):
            read_warc(path, roles=(ROLES[0],))
    (tmp_path / "z.warc").write_text("no records\n")
    assert texts(tmp_path / "y.warc") == ["text"]
    with pytest.raises(DataError, match=r"z\.warc: record 0, .* begins with"):
        read_warc(tmp_path / "z.warc")
