"""Web pages: what is a page, what it says, and pages made to hang a parser."""

import time

import pytest

from tests.tools.read_sources import read_all
from textmill.pipelines.readers.html_text import (
    HTML,
    NO_PAGES,
    Extraction,
    UnusablePageError,
    check_packages,
    page_kind,
    read_page,
)
from textmill.schemas.errors import UsageError


@pytest.mark.parametrize(
    ("data", "declared", "kind"),
    [
        (b"<p>x", "text/html", "html"),
        (b"plain words", "text/html; charset=utf-8", "html"),
        (b"", "TEXT/HTML", "html"),
        (b"\xef\xbb\xbf <!-- x --> <!DocType HTML>", "", "html"),
        (b'<?xml version="1.0"?>\n<html xmlns="x">', "application/xml", "xhtml"),
        ("<html><p>wide".encode("utf-16"), "", "html"),
        (b"<html>", "text/plain", "html"),
        (b"words", "text/plain", "text"),
        (b"words", "", ""),
        (b"words", "application/octet-stream", ""),
        (b"<html>", "application/json", ""),
        (b'[{"a": 1}]', "text/html", ""),
        (b"{ x }", "text/html", "html"),
        (b"GIF89a...", "text/html", ""),
        (b"<!-- a --><!-- b -->%PDF-1.7", "text/html", ""),
        (b"BMW sells cars.", "text/html", "html"),
        (b"<!-- " + b"x" * 2000 + b" --><html>", "", "html"),
        (b"<?xml version='1.0'?><?xml-stylesheet href='a'?><!-- x --><html>", "text/html", "html"),
        (b"<?xml version='1.0'?><!-- x --><rss>", "text/html", ""),
        (b"<?xml version='1.0'?><html>", "", "xhtml"),
        (b"<?xml version='1.0'?><html>", "text/plain", "html"),
        (b"<html>", "application/xhtml+xml", "xhtml"),
        (b"<p>x", "application/xhtml+xml; charset=utf-8", "xhtml"),
        (b"<package/>", "application/xml", ""),
        (b'<?xml version="1.0"?><rss>', "text/html", ""),
        (b'<svg xmlns="x">', "text/html", ""),
    ],
)
def test_the_first_bytes_tell_a_page_where_the_header_does_not(data, declared, kind):
    assert page_kind(data, declared) == kind


@pytest.mark.parametrize(
    "piece",
    ["<!-- a -->", "<!--", "<!-->", " ", "<?xml ", "<?xml?>", "<?", "<!-- -- ", "\n<", "<!doctype "]
    + ["<!---->\n", "[", "{ ", "\0"],
)
def test_the_kind_of_a_page_is_found_in_linear_time(piece):
    began = time.process_time()
    for after in ("", "x", "<p>"):
        page_kind((piece * (300_000 // len(piece)) + after).encode(), "text/html")
    assert time.process_time() - began < 3  # not years


def test_text_title_and_url_of_a_page():
    data = (
        b"<html><head><title> A\n title &amp; more</title><link rel=canonical href='https://a/b'>"
        b"<style>p {color: red}</style></head><body><script>var x = '<p>no</p>'</script>"
        b"<h1>Head</h1><p>One&nbsp;two &#55296; \0 three<br>four</p><!-- no --></body></html>"
    )
    found = read_page(data, "text/html", Extraction("all"))
    assert (found.title, found.url) == ("A title & more", "https://a/b")
    assert "Head" in found.text and "four" in found.text
    assert not any(word in found.text for word in ("color", "var x", "no", "\0"))
    found.text.encode()


@pytest.mark.parametrize("html", HTML)
def test_every_way_gives_the_main_text(html):
    words = "".join(
        f"<p>Paragraph {n} tells of a library on the corner, of its books and of the children who "
        "come here after school to read about countries far away.</p>"
        for n in range(6)
    )
    data = f"<body><nav><a href=/>Home</a></nav><article><h1>A library</h1>{words}</article>"
    found = read_page(data.encode(), "text/html", Extraction(html)).text
    assert all(f"Paragraph {n} tells" in found for n in range(6))
    assert ("Home" in found) == (html == "all")


N = 100_000
HARD = {
    "deep div": "<div>" * N,
    "deep and closed": "<div>" * N + "x" + "</div>" * N,
    "deep bold": "<b><div>" * N,
    "deep lists": "<ul><li>" * N,
    "deep tables": "<table><tr><td>" * N,
    "deep links": "<a href=x>" * N,
    "deep fonts": "<font size=1><p>" * N,
    "misnested": "<b><p></b>" * N,
    "attributes": "<p " + " ".join(f"a{n}=1" for n in range(N)) + ">x",
    "quoted attributes": "<p " + " ".join(f"a{n}='<>'" for n in range(N)) + ">x",
    "slashes": "<p/" + "/".join(f"a{n}" for n in range(N)) + ">x",
    "open tags": "<" * N,
    "many tags": "<p>x" * 10 * N,
    "open comments": "<!--" * N,
    "NULs": "<p>" + "\0" * N + "x",
    "entities": "&amp;" * N + "&#x110000;" * N,
    "an open quote": "<p title='" * N,
    "brackets": "<![CDATA[" * N,
}


@pytest.mark.parametrize("name", HARD)
@pytest.mark.parametrize("html", ["main", "all"])
def test_a_hard_page_neither_hangs_nor_ends_the_process(name, html):
    began = time.process_time()
    try:
        read_page(b"<html><body>" + HARD[name].encode() + b" words", "text/html", Extraction(html))
    except UnusablePageError as error:
        assert error.reason in ("html_too_deep", "html_too_large", "html_broken", "not_html")
    assert time.process_time() - began < 20  # not minutes


def test_a_missing_package_is_named_with_its_command(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"need the package resiliparse: pip .*textmill\[web\]"):
        check_packages("main")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name == "resiliparse" or None)
    with pytest.raises(UsageError, match=r"need the package trafilatura: .*\[trafilatura\]"):
        check_packages("trafilatura")


def test_a_file_is_a_page(tmp_path):
    for name in ("a.html", "b.htm", "c.xhtml", "d.xht"):
        (tmp_path / name).write_text(f"<p>page {name}")
    (tmp_path / "g.html").write_bytes(b"%PDF-1.7")
    (tmp_path / "e.html").write_text("<p>" + "long " * 1000)
    (tmp_path / "f.html").write_text("<p></p>")
    [docs] = read_all(tmp_path, extraction=Extraction("all"), max_document_bytes=1000)
    assert docs.text.to_pylist() == ["page a.html", "page b.htm", "page c.xhtml", "page d.xht"]
    assert docs.unusable == {"not_html": 1}
    assert [(reject.reason, reject.path) for reject in docs.rejects] == [
        ("too_long", str(tmp_path / "e.html"))
    ]
    assert (docs.empty, docs.read, len(docs.digests)) == (1, 7, 7)
    with pytest.raises(UsageError, match=r"a\.html holds web pages .*build_corpus"):
        read_all(tmp_path / "a.html", extraction=NO_PAGES)
