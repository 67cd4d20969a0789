"""Odd pages and records of the web, each with the right text, written by hand.

The ideas are those of warcio's, trafilatura's and browsers' tests; nothing is copied from them.
"""

import bz2
import gzip
import lzma
import pickle
import random
import zlib

import pyarrow as pa
import pytest
import zstandard

from tests.tools.read_sources import read_all
from textmill.pipelines.readers.documents import Role
from textmill.pipelines.readers.html_text import Extraction

ROLES = (Role("text", "string", "text"), Role("title", "id", "title", optional=True))
OK = b"HTTP/1.1 200 OK\r\n"
HTML, TEXT = b"Content-Type: text/html\r\n", b"Content-Type: text/plain\r\n"
XHTML = b"Content-Type: application/xhtml+xml\r\n"


def record(response, end=b"\r\n", version=b"WARC/1.0", more=b""):
    lines = (version, b"WARC-Type: response", b"WARC-Target-URI: http://a.example/")
    lines += (b"Content-Type: application/http", *more.splitlines())
    lines += (b"Content-Length: %d" % len(response),)
    return end.join((*lines, b"", response, b"", b""))


def found(path, content):
    """The text of the only document, or the reason for which there is none."""
    path.write_bytes(content)
    pieces = read_all(path, roles=ROLES, extraction=Extraction("all"))
    texts = [text for piece in pieces for text in piece.text.to_pylist()]
    reasons = [reason for piece in pieces for reason in piece.dropped]
    [result] = texts or reasons
    return result


LINES = b"One.\r\n\r\nTwo.\n\nThree."
LINES_TEXT = "One.\r\n\r\nTwo.\n\nThree."
HEADS = {  # response -> text, or reason
    "CRLF": (OK + TEXT + b"\r\n" + LINES, LINES_TEXT),
    "LF": (b"HTTP/1.1 200 OK\nContent-Type: text/plain\n\n" + LINES, LINES_TEXT),
    "CRLF with a last LF LF, as CGI writes": (
        OK + b"Content-Type: text/plain\n\n" + LINES,
        LINES_TEXT,
    ),
    "LF with a last CRLF": (b"HTTP/1.1 200 OK\nContent-Type: text/plain\n\r\n" + LINES, LINES_TEXT),
    "a line of spaces": (OK + TEXT + b" \t\r\n" + LINES, LINES_TEXT),
    "a folded content type": (
        OK + b"Content-Type:\r\n text/plain;\r\n\tcharset=koi8-r\r\n\r\n" + "Да.".encode("koi8-r"),
        "Да.",
    ),
    "a header without a colon": (OK + b"X-Nothing\r\n" + TEXT + b"\r\n" + LINES, LINES_TEXT),
    "white space before a colon": (OK + b"Content-Type : text/plain\r\n\r\nOne.", "One."),
    "names in any case": (OK + b"CONTENT-TYPE: TEXT/PLAIN\r\n\r\nOne.", "One."),
    "a head in Latin-1": (OK + b"X: caf\xe9\r\n" + TEXT + b"\r\nOne.", "One."),
    "the first of two content types, folded": (
        OK + TEXT + b"Content-Type: image/png\r\n ;x=y\r\n\r\nOne.",
        "One.",
    ),
    "HTTP/2": (b"HTTP/2 200\r\n" + TEXT + b"\r\nOne.", "One."),
    "a body that begins with empty lines": (OK + TEXT + b"\r\n\r\n\nOne.", "\r\n\nOne."),
    "no body": (OK + HTML + b"\r\n", "empty"),
    "no empty line and no body": (OK + HTML, "empty"),
    "a status other than 200": (b"HTTP/1.1 404 Not Found\n\n<p>One.", "http_status"),
    "no HTTP": (b"20241128 10.0.0.1\n\nx", "not_http"),
}


@pytest.mark.parametrize("name", HEADS)
def test_heads(tmp_path, name):
    response, expected = HEADS[name]
    for end in (b"\r\n", b"\n"):
        for version in (b"WARC/0.18", b"WARC/1.0", b"WARC/1.1"):
            content = record(response, end, version)
            assert found(tmp_path / "x.warc", content) == expected
            assert found(tmp_path / "x.warc.gz", gzip.compress(content)) == expected


def gzipped(body):
    return gzip.compress(body, mtime=0)


def brotli(body):
    return pa.compress(body, "brotli", asbytes=True)


def zstd(body):
    return zstandard.ZstdCompressor().compress(body)


def raw_deflate(body):
    return zlib.compress(body)[2:-4]


def coded(coding, body, more=b""):
    return OK + HTML + b"Content-Encoding: " + coding + b"\r\n" + more + b"\r\n" + body


CHUNKED = b"Transfer-Encoding: chunked\r\n"
PAGE, PAGE_TEXT = b"<!doctype html><title>T</title><p>One &amp; two.", "One & two."
NOISE = random.Random(5).randbytes(3000)
LONG = b"".join(b"Line %d of a text with many words in it.\n" % n for n in range(300))
BODIES = {
    "gzip": (coded(b"gzip", gzipped(PAGE)), PAGE_TEXT),
    "x-gzip": (coded(b"x-gzip", gzipped(PAGE)), PAGE_TEXT),
    "gzip in capitals": (coded(b"GZIP", gzipped(PAGE)), PAGE_TEXT),
    "deflate": (coded(b"deflate", zlib.compress(PAGE)), PAGE_TEXT),
    "deflate without zlib's header": (coded(b"deflate", raw_deflate(PAGE)), PAGE_TEXT),
    "deflate that is gzip": (coded(b"deflate", gzipped(PAGE)), PAGE_TEXT),
    "br": (coded(b"br", brotli(PAGE)), PAGE_TEXT),
    "zstd": (coded(b"zstd", zstd(PAGE)), PAGE_TEXT),
    "identity": (coded(b"identity", PAGE), PAGE_TEXT),
    "a coding that nobody knows, undone": (coded(b"x-none", PAGE), PAGE_TEXT),
    "gzip twice": (coded(b"gzip, gzip", gzipped(gzipped(PAGE))), PAGE_TEXT),
    "gzip named twice": (coded(b"gzip, gzip", gzipped(PAGE)), PAGE_TEXT),
    "deflate, then br": (coded(b"deflate, br", brotli(zlib.compress(PAGE))), PAGE_TEXT),
    "10,000 codings": (coded(b"gzip, " * 9_999 + b"br", brotli(PAGE)), PAGE_TEXT),
    **{
        f"{coding.decode()}, undone": (coded(coding, PAGE), PAGE_TEXT)
        for coding in (b"gzip", b"deflate", b"br", b"zstd")
    },
    **{
        f"{name} with bytes after its end": (coded(coding, pack(PAGE) + b"\r\n\0\0"), PAGE_TEXT)
        for name, coding, pack in (
            ("gzip", b"gzip", gzipped),
            ("deflate", b"deflate", zlib.compress),
            ("raw deflate", b"deflate", raw_deflate),
            ("br", b"br", brotli),
            ("zstd", b"zstd", zstd),
        )
    },
    "gzip without its checksum": (coded(b"gzip", gzipped(PAGE)[:-8]), PAGE_TEXT),
    "gzip without its last byte": (coded(b"gzip", gzipped(PAGE)[:-1]), PAGE_TEXT),
    "deflate without its checksum": (coded(b"deflate", zlib.compress(PAGE)[:-4]), PAGE_TEXT),
    "zstd, cut before the end of its only block": (coded(b"zstd", zstd(LONG)[:-9]), "not_html"),
    "a coding that nobody knows": (coded(b"bzip2", bz2.compress(LONG)), "not_html"),
    "chunked": (
        coded(b"identity", b"%x\r\n%b\r\n0\r\n\r\n" % (len(PAGE), PAGE), CHUNKED),
        PAGE_TEXT,
    ),
    "chunked and gzip": (
        coded(b"gzip", b"%x\r\n%b\r\n0\r\n\r\n" % (len(gzipped(PAGE)), gzipped(PAGE)), CHUNKED),
        PAGE_TEXT,
    ),
    "chunked and gzip, joined": (coded(b"gzip", gzipped(PAGE), CHUNKED), PAGE_TEXT),
    "chunked and cut": (
        OK + TEXT + CHUNKED + b"\r\n5\r\nOne, \r\nff\r\ntwo, th",
        "One, two, th",
    ),
    "chunked with trailers": (
        OK + TEXT + CHUNKED + b"\r\n4;x=y\r\nOne,\r\n5\r\n two.\r\n0\r\nA: b\r\n\r\n",
        "One, two.",
    ),
    "joined, a first line like a size": (OK + TEXT + CHUNKED + b"\r\nCafe\nOne.", "Cafe\nOne."),
    "joined, a first line of zero": (OK + TEXT + CHUNKED + b"\r\n0\r\nOne.", "0\r\nOne."),
    "joined, a first line of a date": (OK + TEXT + CHUNKED + b"\r\n2024\nOne.", "2024\nOne."),
    "joined, a bead": (OK + TEXT + CHUNKED + b"\r\nbead\r\n\r\nOne.", "bead\r\n\r\nOne."),
}


@pytest.mark.parametrize("name", BODIES)
def test_bodies(tmp_path, name):
    response, expected = BODIES[name]
    assert found(tmp_path / "x.warc", record(response)) == expected


BINARY = {
    "random bytes": NOISE,
    "xz": lzma.compress(LONG),
    "bzip2": bz2.compress(LONG),
    "zstd": zstd(LONG),
    "br": brotli(LONG),
    "deflate": raw_deflate(LONG),
    "MP3 without ID3": b"".join(b"\xff\xfb\x90d" + NOISE[n : n + 413] for n in range(0, 2500, 413)),
    "a pickle of numbers": pickle.dumps({f"a{n}": n for n in range(500)}),
    "a pickle of words": pickle.dumps([f"word {n}" for n in range(500)]),
    "numpy's floats": b"\x93NUMPY\1\0v\0{'descr': '<f4', 'shape': (750,), }\n" + NOISE,
    "a PDF behind a comment": b"<!-- page 1 -->\n%PDF-1.4\n" + LONG[:500] + zlib.compress(LONG),
    "a PNG behind white space": b"\n \n\x89PNG\r\n\x1a\n" + NOISE,
    "samples of sound": b"".join(n.to_bytes(2, "little") for n in range(0, 30_000, 7)),
}


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("head", [HTML, TEXT, b"Content-Type: text/html; charset=koi8-r\r\n", b""])
def test_binary_data_is_no_text(tmp_path, name, head):
    content = record(OK + head + b"\r\n" + BINARY[name])
    assert found(tmp_path / "x.warc", content) == "not_html"
    (tmp_path / "x.warc").unlink()
    assert found(tmp_path / "x.html", BINARY[name]) == "not_html"


KEPT = {  # plain text that is none too clean -> the same text
    "colors of a terminal": ("\x1b[31mred\x1b[0m " * 50).encode(),
    "form feeds": b"page\n\f" * 50,
    "overstrikes of a manual": b"N\bNA\bAM\bME\bE\n" * 50,
    "some control characters": b"words \x01 and words, which are many more than those are. " * 9,
    "one control character": b"a\x07b",
    "a DOS text with its end": b"One.\r\n\x1a",
}


@pytest.mark.parametrize("name", KEPT)
def test_text_with_a_few_odd_bytes_is_kept(tmp_path, name):
    content = record(OK + TEXT + b"\r\n" + KEPT[name])
    assert found(tmp_path / "x.warc", content) == KEPT[name].decode()


XML = b"<?xml version='1.0' encoding='utf-8'?>\n"
NAMESPACE = b"<html xmlns='http://www.w3.org/1999/xhtml'>"


def xhtml(head, body=b"<p>One.</p>"):
    return NAMESPACE + b"<head>%b</head><body>%b</body></html>" % (head, body)


PAGES_IN_XML = {  # page -> text
    "an empty title": (xhtml(b"<title/>"), "One."),
    "an empty title with a space": (xhtml(b"<title />"), "One."),
    "a script of another file": (xhtml(b"<script src='a.js'/>"), "One."),
    "an empty style": (xhtml(b"<style type='text/css'/>"), "One."),
    "an empty textarea": (xhtml(b"", b"<textarea/><p>One.</p>"), "One."),
    "an empty iframe": (xhtml(b"", b"<iframe src='b'/><p>One.</p>"), "One."),
    "an empty noscript and object": (xhtml(b"<noscript/>", b"<object/><p>One.</p>"), "One."),
    "an empty select": (xhtml(b"", b"<select/><p>One.</p>"), "One."),
    "an anchor": (xhtml(b"", b"<a id='c'/><p>One.</p><p>Two.</p>"), "One.\n\nTwo."),
    "empty blocks": (xhtml(b"", b"<div/><p>One.</p><p/><p>Two.</p>"), "One.\n\nTwo."),
    "elements that are void in HTML": (
        xhtml(b"<meta name='a'/>", b"<p>One.<br/>Two.</p>"),
        "One.\nTwo.",
    ),
    "a script with CDATA": (
        xhtml(b"<script>//<![CDATA[\nif (a < b) c('<p/>');\n//]]></script>"),
        "One.",
    ),
    "CDATA": (xhtml(b"", b"<p><![CDATA[1 < 2 & <b/>]]></p>"), "1 < 2 & <b/>"),
    "an instruction": (xhtml(b"", b"<?page n='>'?><p>One.</p>"), "One."),
    "a comment": (xhtml(b"<!-- <title/> -->"), "One."),
    "entities of its own": (
        b"<!DOCTYPE html [<!ENTITY a '<b/>'> ]>" + xhtml(b"<title/>"),
        "One.",
    ),
    "a comment before the root": (b"<!-- made by hand -->\n" + xhtml(b"<title/>"), "One."),
}


@pytest.mark.parametrize("name", PAGES_IN_XML)
def test_pages_in_xml(tmp_path, name):
    page, expected = PAGES_IN_XML[name]
    for content in (page, XML + page):
        assert found(tmp_path / "x.xht", content) == expected
        assert found(tmp_path / "y.warc", record(OK + XHTML + b"\r\n" + content)) == expected
        (tmp_path / "x.xht").unlink()
    assert found(tmp_path / "x.html", XML + page) == expected  # a chapter of an e-book
    assert found(tmp_path / "y.warc", record(OK + b"\r\n" + XML + page)) == expected


def test_browsers_read_text_html_as_html(tmp_path):
    """There the slash of an empty element does not count, whatever the page declares."""
    page = b"<!DOCTYPE html PUBLIC '-//W3C//DTD XHTML 1.0 Strict//EN' 'a'>" + xhtml(b"<title/>")
    for content in (page, XML + page):
        assert found(tmp_path / "x.warc", record(OK + HTML + b"\r\n" + content)) == "empty"
    assert found(tmp_path / "x.html", page) == "empty"


WINDOWS = (
    "It’s the town’s oldest bridge, and the people’s favourite place.",
    "A vote is underway in South Africa. “I like his kind of person,” she said of the mayor.",
    "Claude-Pierre Pecaudy de Contrecœur went to relieve Saint-Pierre during the winter.",
    "The shop sells it for €5, or £4 for members.",
    "Zoë Brontë met señor Núñez at the café – at last…",
    "a\xa0b",
)


@pytest.mark.parametrize("text", WINDOWS)
def test_pages_without_a_charset(tmp_path, text):
    page = f"<title>T</title><p>{text}</p>".encode("cp1252")
    assert found(tmp_path / "x.html", page) == text
    (tmp_path / "x.html").unlink()
    assert found(tmp_path / "x.warc", record(OK + HTML + b"\r\n" + page)) == text
    plain = record(OK + TEXT + b"\r\n" + text.encode("cp1252"))
    assert found(tmp_path / "x.warc", plain) == text


def test_cut_and_truncated_pages_are_counted(tmp_path):
    packed = gzipped(LONG)
    path = tmp_path / "x.warc"
    responses = (coded(b"gzip", packed), coded(b"gzip", packed[:-99]), coded(b"gzip", packed[:99]))
    records = [record(response) for response in responses]
    records.append(record(coded(b"gzip", packed), more=b"WARC-Truncated: length"))
    path.write_bytes(b"".join(records))
    [docs] = read_all(path, roles=ROLES, extraction=Extraction("all"))
    assert (len(docs.text), docs.observed) == (4, {"responses": {"body_cut": 3}})
    assert len(docs.text[2].as_py()) < len(docs.text[1].as_py()) < len(docs.text[0].as_py())
