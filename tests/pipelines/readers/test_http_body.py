"""Responses: heads beside warcio's, and chunks and encodings that are whole, cut or odd."""

import bz2
import gzip
import io
import random
import time
import zlib

import pyarrow as pa
import pytest
import zstandard
from warcio.archiveiterator import ArchiveIterator

from textmill.pipelines.readers.formats.warc import _parse_headers
from textmill.pipelines.readers.http_body import decode_body, find_head_end

LONGEST = 1 << 20
BODY = b"First line.\r\n\r\nThird line.\n\nFifth line.\r\n \r\nSeventh."
HEADS = {
    "CRLF": b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nServer: x\r\n\r\n",
    "LF": b"HTTP/1.1 200 OK\nContent-Type: text/plain\nServer: x\n\n",
    "CRLF, then LF LF": b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\n\n",
    "CRLF, then a lone LF": b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\n",
    "LF, then CRLF": b"HTTP/1.1 200 OK\nContent-Type: text/plain\n\r\n",
    "a status line alone": b"HTTP/1.1 200 OK\r\n\r\n",
    "a status line alone, LF": b"HTTP/1.0 200 OK\n\n",
    "a status without words": b"HTTP/1.1 200\r\nA: b\r\n\r\n",
    "a folded value": b"HTTP/1.1 200 OK\r\nContent-Type: text/plain;\r\n\tcharset=x\r\n\r\n",
    "a folded value, LF": b"HTTP/1.1 200 OK\nContent-Type: text/plain;\n charset=utf-8\n\n",
    "white space before the colon": b"HTTP/1.1 200 OK\r\nContent-Type : text/plain\r\n\r\n",
    "a line without a colon": b"HTTP/1.1 200 OK\r\nno header\r\nContent-Type: text/plain\r\n\r\n",
    "an empty value": b"HTTP/1.1 200 OK\r\nContent-Type:\r\nA: b\r\n\r\n",
    "a value in Latin-1": b"HTTP/1.1 200 OK\r\nServer: caf\xe9\r\n\r\n",
    "a value in UTF-8": "HTTP/1.1 200 OK\r\nServer: café\r\n\r\n".encode(),
    "a line of spaces": b"HTTP/1.1 200 OK\r\nA: b\r\n  \r\n",
    "several CRs": b"HTTP/1.1 200 OK\r\r\nA: b\r\r\n\r\r\n",
    "colons in a value": b"HTTP/1.1 200 OK\r\nLocation: http://a:80/\r\n\r\n",
}


def read_by_warcio(response):
    head = b"WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: http://a/\r\n"
    head += b"Content-Type: application/http\r\nContent-Length: %d\r\n\r\n" % len(response)
    record = next(iter(ArchiveIterator(io.BytesIO(head + response + b"\r\n\r\n"))))
    headers: dict[str, str] = {}
    for name, value in record.http_headers.headers:
        headers.setdefault(name.lower(), " ".join(value.split()))
    return headers, record.raw_stream.read()


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("body", [BODY, b"", b"\n", b"\r\n\r\nx"])
def test_the_first_empty_line_ends_a_head_as_in_warcio(name, body):
    response = HEADS[name] + body
    size = find_head_end(response)
    assert response[:size] == HEADS[name]
    assert (_parse_headers(response[:size]), response[size:]) == read_by_warcio(response)
    assert find_head_end(HEADS[name].rstrip()) == 0


def test_folded_values_take_linear_time():
    head = b"HTTP/1.1 200 OK\r\nA: b\r\n" + b" c\r\n" * 200_000 + b"\r\n"
    began = time.process_time()
    assert len(_parse_headers(head)["a"]) == 400_001
    assert time.process_time() - began < 2


CHUNKED = {"transfer-encoding": "chunked"}
CHUNKS = {  # stored body -> (body, whether it is cut)
    "one": (b"4\r\nWiki\r\n0\r\n\r\n", (b"Wiki", False)),
    "several, an extension, trailers": (
        b"4;a=b\r\nWiki\r\n005  \r\npedia\r\n0\r\nA: b\r\nC: d\r\n\r\n",
        (b"Wikipedia", False),
    ),
    "hexadecimal, either case": (b"a\r\n0123456789\r\nB\r\n0123456789x\r\n0\r\n\r\n",)
    + ((b"01234567890123456789x", False),),
    "line ends inside": (b"6\r\na\r\n\r\nb\r\n0\r\n\r\n", (b"a\r\n\r\nb", False)),
    "line ends of LF": (b"4\nWiki\n0\n\n", (b"Wiki", False)),
    "no last line end": (b"4\r\nWiki\r\n0\r\n", (b"Wiki", False)),
    "nothing in it": (b"0\r\n\r\n", (b"", False)),
    "bytes after the end": (b"4\r\nWiki\r\n0\r\n\r\nrest", (b"Wiki", True)),
    "no last chunk": (b"4\r\nWiki\r\n", (b"Wiki", True)),
    "cut in a size": (b"4\r\nWiki\r\n1f", (b"Wiki", True)),
    "cut in the second chunk": (b"4\r\nWiki\r\n5\r\nped", (b"Wikiped", True)),
    "cut in the first, packed": (b"ff\r\n" + gzip.compress(BODY), (gzip.compress(BODY), True)),
    "joined": (b"Wikipedia", None),
    "joined, a word like a size": (b"Cafe\nOur menu.\n", None),
    "joined, a word like a size, CRLF": (b"Cafe\r\nOur menu.\r\n", None),
    "joined, a zero": (b"0\nBottles.\n", None),
    "joined, a zero, CRLF": (b"0\r\nBottles: none.\r\n\r\nMore.", None),
    "joined, a size that does not fit": (b"3\r\nWikipedia\r\n0\r\n\r\n", None),
    "a size with a sign": (b"+4\r\nWiki\r\n0\r\n\r\n", None),
    "a size of Python": (b"0_4\r\nWiki\r\n0\r\n\r\n", None),
    "a size of a million digits": (b"0" * 1_000_000, None),
}


@pytest.mark.parametrize("name", CHUNKS)
def test_a_body_is_joined_only_if_its_sizes_fit(name):
    stored, expected = CHUNKS[name]
    assert decode_body(stored, CHUNKED, LONGEST) == (expected or (stored, False))


WORDS = [f"word{n}" for n in range(500)]
TEXT = " ".join(random.Random(1).choices(WORDS, k=30_000)).encode()
PACK = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "deflate, raw": lambda data: zlib.compress(data)[2:-4],
    "br": lambda data: pa.compress(data, "brotli", asbytes=True),
    "zstd": zstandard.ZstdCompressor().compress,
}


def decode(data, coding):
    return decode_body(data, {"content-encoding": coding.partition(",")[0]}, LONGEST)


@pytest.mark.parametrize("coding", PACK)
def test_a_body_is_decoded_as_far_as_it_can_be(coding):
    packed = PACK[coding](TEXT)
    assert decode(packed, coding) == (TEXT, False)
    for rest in (b"\r\n", b"\0" * 99, b"<p>more</p>", random.Random(2).randbytes(99)):
        assert decode(packed + rest, coding) == (TEXT, True)
    content, is_cut = decode(packed[: len(packed) * 3 // 4], coding)
    # Zstandard decodes blocks of 128 KiB, others any number of bytes.
    assert is_cut and len(content) >= len(TEXT) // 2 - 5000 and TEXT.startswith(content)
    damaged = packed[:-5000] + random.Random(3).randbytes(5000)
    content, is_cut = decode(damaged, coding)
    assert (content, is_cut) == (damaged, False) or (is_cut and content[:9] == TEXT[:9])
    for plain in (TEXT, b"", b"x^2 + y^2 = z^2", b"Kitten\n", "ÆØÅ æøå".encode("latin-1")):
        assert decode(plain, coding) == (plain, False)  # a crawler decoded it, and kept the header


@pytest.mark.parametrize("coding", PACK)
def test_no_more_is_decoded_than_a_document_may_have(coding):
    headers = {"content-encoding": coding.partition(",")[0]}
    packed = PACK[coding](bytes(1 << 24))
    for data in (packed, packed[:-9]):
        assert len(decode_body(data, headers, 1000)[0]) == 1001


def test_lists_of_codings_are_undone_from_the_last():
    packed = gzip.compress(zlib.compress(TEXT))
    assert decode_body(packed, {"content-encoding": "deflate, GZip"}, LONGEST) == (TEXT, False)
    twice = gzip.compress(gzip.compress(TEXT))
    assert decode_body(twice, {"content-encoding": "gzip, gzip"}, LONGEST) == (TEXT, False)
    many = {"content-encoding": "br," * 10_000 + "gzip"}
    assert decode_body(gzip.compress(TEXT), many, LONGEST) == (TEXT, False)
    other = {"content-encoding": "bzip2"}
    assert decode_body(bz2.compress(TEXT), other, LONGEST) == (bz2.compress(TEXT), False)


def test_members_of_gzip_are_joined():
    pieces = [gzip.compress(b"%d " % n) for n in range(500)]
    whole = b"".join(b"%d " % n for n in range(500))
    assert decode(b"".join(pieces), "gzip") == (whole, False)
    assert decode(b"".join(pieces) + b"\r\n", "gzip") == (whole, True)
    assert decode(gzip.compress(b"x") * 10_001, "gzip") == (b"x" * 10_000, True)
