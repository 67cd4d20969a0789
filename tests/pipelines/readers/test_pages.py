"""Pages that take too much are counted, and the pages around them are kept."""

import re
import signal
import subprocess
import sys
import time
from collections import Counter

import psutil
import pytest

from tests.tools.corpus_factory import build, texts_of
from tests.tools.python_process import run_python
from textmill.pipelines.readers import pages
from textmill.pipelines.readers.html_text import (
    HTML,
    Extraction,
    Page,
    UnusablePageError,
    read_page,
)
from textmill.pipelines.readers.pages import convert_pages
from textmill.schemas.limited_process import LimitedProcess

N = 100_000
FONTS = "".join(f"<font id={n}>" for n in range(400))
VALUES = " ".join(f"a{n}=1" for n in range(500_000))
BODIES = "".join(f"<body a{n}=1>" for n in range(50_000))
# Markup in a body, and its text or the reason for having none.
PAGES = {
    # Known forms, which no parser sees.
    "attributes of an end tag": (f"<p>one</p {VALUES}>two", "html_broken"),
    "attributes": (f"<p {VALUES}>x", "html_broken"),
    "a thousand attributes": (f"<p {VALUES[:8000]}>x", "html_broken"),
    "hundreds of attributes": (f"<p {VALUES[:5000]}>hundreds", "hundreds"),
    "attributes in a script": (f"<script>if (a<b {VALUES})</script><p>script", "script"),
    "attributes in a comment": (f"<!-- <a> <p {VALUES} -->comment", "comment"),
    "too many tags": ("<p>x" * 5 * N + "<p>", "html_too_large"),
    "divs": ("<div>" * N, "html_too_deep"),
    "formatting": ("<b><i>" * N, "html_too_deep"),
    "tables": ("<table><tr><td>" * N, "html_too_deep"),
    "ruby": ("<ruby><rt>" * N, "html_too_deep"),
    "graphics": ("<svg><g>" * N, "html_too_deep"),
    "formulas": ("<math><mi>" * N, "html_too_deep"),
    "pages in graphics": ("<svg><foreignObject>" * N, "html_too_deep"),
    # Unknown forms. The time of the parser is quadratic, or its memory.
    "options": ("<select>" + "<option>" * 60_000, "page_too_costly"),
    "fonts that each paragraph reopens": (f"<p>{FONTS}" + "<p>x" * 3000, "page_too_costly"),
    "links in divs": ("<a><div>" * 2 * N, "page_too_costly"),
    "attributes of many body tags": (BODIES, "page_too_costly"),
    # Large or odd pages that take little.
    "comments": ("<!-- x -->" * N + "comments", "comments"),
    "open comments": ("<!--" * N, "empty"),
    "a tag without end": ("before" + "<script" * 4 * N, "before"),
    "options without a list": ("options" + "<option>" * N, "options"),
    "an open quote": ("quote<p title='" + "x" * N, "quote"),
    "a long attribute": ("<p title='" + "x" * 10 * N + "'>attribute", "attribute"),
    "references": ("&lt;" * N, "<" * N),
    "ampersands": ("&" * N, "&" * N),
    "half references": ("&#" * N, "&#" * N),
    "references beyond Unicode": ("&#x110000;" * N + "x", "\ufffd" * N + "x"),
    "tags after plaintext": ("<plaintext>" + "<p>" * N, "<p>" * N),
    "marked sections": ("<![CDATA[" * N + ">sections", "sections"),
    "sections in graphics": ("<svg>" + "<![CDATA[ ]]>" * N + "</svg>graphics", "graphics"),
    "declarations": ("<!doctype html>" * N + "declarations", "declarations"),
    "templates": ("<template>" * 300 + "</template>" * 300 + "templates", "templates"),
    "frames": ("<frameset>" * N + "frames", "frames"),
    "text in a table": ("<table>" + "x<tr>" * N, "x" * N),
    "end tags": ("</x>" * N + "ends", "ends"),
    "fonts side by side": ("<font size=1>y</font>" * N, "y" * N),
    "a long word": ("x" * 10 * N, "x" * 10 * N),
    "NULs": ("<p>" + "\0" * N + "NULs", "not_html"),
}


@pytest.fixture
def strict(monkeypatch):
    """Limits that make a test quick; an ordinary page takes far less."""
    limits = {"seconds": 0.8, "size": 1 << 30}
    children = {html: LimitedProcess(pages._child(html)._program, **limits) for html in HTML}
    monkeypatch.setattr(pages, "_child", children.get)
    yield
    for child in children.values():
        child.close()


def write_pages(path, markups):
    """A WARC file of pages."""
    with path.open("wb") as file:
        for number, markup in enumerate(markups):
            content = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n" + markup.encode()
            file.write(
                b"WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: http://a.b/%d\r\n"
                b"Content-Length: %d\r\n\r\n%b\r\n\r\n" % (number, len(content), content)
            )
    return path


@pytest.mark.slow
def test_pages_around_costly_ones_are_kept(tmp_path, strict):
    bodies = [body for name, (body, _) in PAGES.items() for body in (body, f"<p>Beside {name}.")]
    source = write_pages(tmp_path / "a.warc", [f"<html><body>{body}" for body in bodies])
    corpus = build(source, tmp_path / "out", "--html=all")
    is_reason = re.compile(r"(html|page|not)_\w+|empty").fullmatch
    expected = [text for _, text in PAGES.values()]
    texts = [text for text in expected if not is_reason(text)]
    assert texts_of(corpus) == sorted(texts + [f"Beside {name}." for name in PAGES])
    assert corpus.stats.dropped == {**corpus.stats.dropped, **Counter(filter(is_reason, expected))}


@pytest.mark.parametrize("html", ["main", "markdown"])  # which have compiled loops
def test_the_first_page_has_a_main_text(html):
    page = pages.read_page(pages.SAMPLE, "text/html", Extraction(html))
    paragraphs = pages.SAMPLE.decode().split("<p>")[1:]
    assert [line for line in page.text.split("\n") if line] == paragraphs


@pytest.mark.slow
def test_the_first_page_compiles_all_that_others_need(tmp_path):
    """Compiling a loop takes longer than a page may."""
    posts = "".join(f"<div class=comment><p>Reader {n} is glad to hear of it.</div>" for n in "abc")
    table = "<table><tr><td>grain<td>2<tr><td>flour<td>1</table><pre>grind(2)</pre><ul><li>one"
    article = f"<nav><a href=/>home</a></nav>{pages.SAMPLE.decode()}{table}{posts}"
    program = f"""
from numba.core import event
from textmill.pipelines.readers import pages
for html in ("main", "markdown"):
    pages.prepare(html)
    with event.install_recorder("numba:compile") as compiled:
        for body in {[article, posts, table]}:
            for comments in ("drop", "keep"):
                pages.read_page(body.encode(), "text/html", pages.Extraction(html, comments))
    print([str(entry.data["dispatcher"]) for _, entry in compiled.buffer])
"""
    assert run_python("-c", program, NUMBA_CACHE_DIR=str(tmp_path)).stdout == "[]\n[]\n"


@pytest.mark.parametrize("html", HTML)
def test_every_way_of_conversion_is_bounded(html, strict):
    line = "<p>On day {0} the miller grinds slowly, and the wheel turns all night long.</p>"
    text = "".join(map(line.format, range(9)))
    page, deep = (text.encode(), "text/html"), (b"<a><div>" * 200_000, "text/html")
    found = convert_pages([page, deep, page, (b"%PDF-", "text/html"), page], Extraction(html))
    assert [str(found[1]), str(found[3])] == ["page_too_costly", "not_html"]
    assert isinstance(found[0], Page)
    assert found[0] == found[2] == found[4]
    assert found[0].text.count("the miller") == 9


@pytest.mark.parametrize(
    "answer",
    [
        b"\xff",
        b"",
        b"[" * 100_000,
        b'"a_reason"',
        b'["text", "", ""]',
        b'["text", "", "", 1]',
        b'["text", "", "", 2.0]',
        b'["text", "", "", NaN]',
        b'["\\ud800", "", "", 1.0]',
        b'[["text"], "", "", 1.0]',
    ],
)
def test_an_answer_of_a_broken_child_is_no_page(answer):
    found = pages._parse(answer)
    assert isinstance(found, UnusablePageError) and found.reason == "html_broken"


def test_an_answer_holds_the_whole_page():
    markup = "<html><head><title>T</title></head><body><p>a\tb &amp; c\u2028\x1f \U0001f600</p>" * 9
    data, kind = markup.encode(), "text/html"
    [found] = convert_pages([(data, kind)], Extraction("all"))
    assert found == read_page(data, kind, Extraction("all"))


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_command_ends_at_once_during_a_costly_page(tmp_path, wait_for, how):
    source = write_pages(tmp_path / "a.warc", ["<body>" + "<a><div>" * 240_000] * 9)
    process = subprocess.Popen(
        [sys.executable, "-m", "pipelines.build_corpus"]
        + [f"--input={source}", f"--output={tmp_path / 'out'}", "--html=all"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    children = psutil.Process(process.pid).children
    try:
        wait_for(lambda: process.poll() or (children() and children()[0].cpu_times().user > 0.5))
        child = children()
        began = time.monotonic()
        process.send_signal(how)
        said = process.communicate(timeout=30)[1].decode()
    finally:
        process.kill()
    assert time.monotonic() - began < 10  # usually 0.3 s; a page alone takes 15
    assert psutil.wait_procs(child, timeout=5)[1] == []
    # While the run is planned, SIGTERM ends the process itself; shells report both as 143.
    ends = {128 + how, -how} if how == signal.SIGTERM else {130}
    assert process.returncode in ends and "Traceback" not in said
