"""build_corpus counts and reports pages whose main text is a small part of their visible text."""

import json

import pytest

from tests.pipelines.corpus.test_corpus_check import seal
from tests.tools.corpus_factory import build, rows_of
from textmill.pipelines.corpus.short_pages import show_hosts, warn_of_hosts
from textmill.pipelines.inspection.report.parts import CellTable, Excerpts
from textmill.pipelines.readers.corpus_files import read_hosts
from textmill.pipelines.readers.html_text import Extraction, Page, read_page
from textmill.pipelines.readers.page_hosts import Host, PageHosts, WebPage, count_pages
from textmill.pipelines.verify import main as verify
from textmill.schemas.errors import DataError

MENU = "".join(f"<li><a href=/{n}>Archive of the year {1700 + n}</a></li>" for n in range(299))
TEXT = "<p>The miller of page {0} grinds slowly, and the wheel turns through the whole night.</p>"
ARTICLE = f"<main><article><h1>The mill</h1>{TEXT * 3}</article></main>"
SHORT = f"<html><body><nav><ul>{MENU}</ul></nav>{ARTICLE}</body></html>"
WHOLE = f"<html><body><main><article>{TEXT * 9}</article></main></body></html>"
WARNING = "main text: 20 of 25 pages of substack.example have a main text below a tenth of their "
WARNING += "visible text: check the samples in report.html; --html=all keeps all text"


def write_crawl(folder, without=()):
    """Files of pages of three hosts; most pages of one of them are short."""
    pages = [(f"https://substack.example/{n}", SHORT if n < 20 else WHOLE) for n in range(25)]
    pages += [(f"https://good.example/{n}", WHOLE) for n in range(12)]
    pages += [(f"https://few.example/{n}", SHORT) for n in range(2)]
    folder.mkdir()
    for start in range(4):
        with (folder / f"{start}.warc").open("wb") as file:
            for number in range(start, len(pages), 4):
                url, page = pages[number]
                if url in without:
                    continue
                content = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n"
                content += page.format(number).encode()
                file.write(
                    b"WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: %b\r\n"
                    b"Content-Length: %d\r\n\r\n%b\r\n\r\n" % (url.encode(), len(content), content)
                )
    return folder


def test_short_main_texts_are_counted_by_host_and_reported(tmp_path, capsys):
    corpus = build(write_crawl(tmp_path / "crawl"), tmp_path / "corpus")
    assert corpus.stats.observed == {"web_pages": {"pages": 39, "short_main_text": 22}}
    hosts = read_hosts(corpus).hosts
    counts = {name: (host.pages, host.short_pages) for name, host in hosts.items()}
    assert counts == {"substack.example": (25, 20), "good.example": (12, 0), "few.example": (2, 2)}
    out = " ".join(capsys.readouterr().out.split())
    assert f"warning: {WARNING}" in out
    assert "short main texts │ 22 of 39 web pages, below a tenth of the visible text" in out
    page = (tmp_path / "corpus/report.html").read_text()
    assert "could not be written" not in page and "Short main texts" in page
    section = page[page.index("Short main texts") :]
    for sample in hosts["substack.example"].samples:
        assert 0 < sample.share < 0.1
        assert sample.excerpt.startswith("The miller of page")
        assert sample.url in section and sample.excerpt in section
    verify([corpus.directory])


@pytest.mark.parametrize(
    ("output", "flags"),
    [
        ("one", []),
        pytest.param(
            "two",
            ["--shuffle_by=runner", "--direct_running_mode=multi_processing"]
            + ["--direct_num_workers=2"],
            marks=pytest.mark.slow,
        ),
    ],
)
def test_the_bytes_are_the_same_for_any_files_and_workers(tmp_path, output, flags):
    crawl = write_crawl(tmp_path / "crawl")
    whole = tmp_path / "whole.warc"
    whole.write_bytes(b"".join(file.read_bytes() for file in sorted(crawl.iterdir(), reverse=True)))
    build(crawl, tmp_path / output, *flags)
    build(whole, tmp_path / "other")
    for name in ("hosts.json", "stats.json"):
        made = [(tmp_path / one / name).read_bytes() for one in (output, "other")]
        assert made[0] == made[1], name


@pytest.mark.parametrize("html", ["main", "all"])
def test_a_forgotten_page_leaves_neither_its_host_nor_a_sample(tmp_path, html):
    """As if the crawl had never had it."""
    crawl, flags = write_crawl(tmp_path / "crawl"), [f"--html={html}", "--keep_fields=url"]
    whole = build(crawl, tmp_path / "whole", *flags)
    gone = {"https://few.example/0", "https://few.example/1"}
    gone |= {f"https://substack.example/{n}" for n in (0, 3, 7, 8, 9, 11, 21)}
    digests = [row["id"] for row in rows_of(whole) if row["url"] in gone]
    (tmp_path / "list.txt").write_text("\n".join(digests))
    found = build(crawl, tmp_path / "found", *flags, f"--forget={tmp_path / 'list.txt'}")
    due = build(write_crawl(tmp_path / "others", gone), tmp_path / "due", *flags)
    assert len(digests) == len(gone) == found.stats.dropped["forgotten"]
    assert found.stats.observed == due.stats.observed
    assert read_hosts(found) == read_hosts(due)
    for path in (tmp_path / "found").rglob("*"):
        assert path.is_dir() or b"few.example" not in path.read_bytes(), path


def test_changed_counts_are_found(tmp_path):
    corpus = tmp_path / "corpus"
    build(write_crawl(tmp_path / "crawl"), corpus)
    values = json.loads((corpus / "hosts.json").read_text())
    values["hosts"]["good.example"]["pages"] = 13
    (corpus / "hosts.json").write_text(json.dumps(values))
    seal(corpus)
    with pytest.raises(DataError, match="hosts.json: hosts have 40 pages, but web_pages counts 39"):
        verify([str(corpus)])
    (corpus / "hosts.json").unlink()
    manifest = json.loads((corpus / "MANIFEST.json").read_text())
    manifest["files"] = [file for file in manifest["files"] if file["path"] != "hosts.json"]
    (corpus / "MANIFEST.json").write_text(json.dumps(manifest))
    seal(corpus)
    with pytest.raises(DataError, match="hosts.json: hosts have 0 pages, but web_pages counts 39"):
        verify([str(corpus)])


def test_html_files_count_by_their_canonical_link(tmp_path):
    (tmp_path / "pages").mkdir()
    head = "<html><head><link rel=canonical href=https://a.example/1></head>"
    (tmp_path / "pages/1.html").write_text(SHORT.replace("<html>", head).format(1))
    (tmp_path / "pages/2.html").write_text(WHOLE.format(2))
    corpus = build(tmp_path / "pages", tmp_path / "corpus")
    counts = {"pages": 2, "short_main_text": 1, "pages_without_host": 1}
    assert corpus.stats.observed == {"web_pages": counts}
    [host] = read_hosts(corpus).hosts.items()
    assert (host[0], host[1].pages, host[1].samples[0].url) == (
        "a.example",
        1,
        "https://a.example/1",
    )
    everything = build(tmp_path / "pages", tmp_path / "all", "--html=all")
    assert (everything.stats.observed, read_hosts(everything)) == ({}, PageHosts())


@pytest.mark.parametrize(
    ("page", "html", "is_short"),
    [
        (SHORT, "main", True),
        (SHORT, "all", False),
        (WHOLE, "main", False),
        ("<html><body><script>" + "x = 1;" * 999 + "</script></body></html>", "main", False),
        (f"<html><body><nav><ul>{MENU[:300]}</ul></nav></body></html>", "main", False),
    ],
)
def test_a_main_text_is_short_beside_much_visible_text(page, html, is_short):
    assert read_page(page.encode(), "text/html", Extraction(html)).is_short is is_short


def hosts_of(**counts):
    """Pages and short pages by host."""
    return PageHosts({name: Host(*numbers) for name, numbers in counts.items()})


def test_the_worst_three_hosts_are_named():
    fine = {"even": (20, 10), "few": (9, 9), "good": (99, 0)}
    assert warn_of_hosts(hosts_of(**fine)) == []
    [warning] = warn_of_hosts(hosts_of(a=(10, 6), b=(30, 20), c=(40, 40), **fine))
    assert warning.startswith(
        "main text: 40 of 40 pages of c, 20 of 30 pages of b, 6 of 10 pages of a have a main text "
    )
    [warning] = warn_of_hosts(hosts_of(**{f"h{n}": (50, 30) for n in range(7)}, **fine))
    assert warning.startswith(
        "main text: 30 of 50 pages of h0, 30 of 50 pages of h1, 30 of 50 pages of h2 and most "
        "pages of 4 more hosts have a main text below a tenth of their visible text: check"
    )


def test_the_report_shows_hosts_with_short_pages():
    assert show_hosts(hosts_of(good=(99, 0))) == ()
    two = Page("Ready?", share=0.031), Page("x")
    _, pages = count_pages([WebPage.of("http://a/", page) for page in two])
    assert show_hosts(pages) == (
        "The main text of these pages is below 10% of their visible text.",
        CellTable(
            [("a", 2, 1, 0.5, [("", "blue", 0.5), ("", "", 0.5)])],
            ("host", "pages", "short", "share", ""),
        ),
        Excerpts([("3.1 %", "Ready?", "http://a/")], "a: 1 of 1 page"),
    )
    sentence, table, *_ = show_hosts(PageHosts({str(n): Host(2, 1) for n in range(1000)}))
    assert isinstance(table, CellTable) and len(table.rows) == 20
    assert "Only 1,000 hosts, chosen by the hash of their name, are counted." in str(sentence)
