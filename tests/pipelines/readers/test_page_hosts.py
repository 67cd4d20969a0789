"""Counts of short main texts by host do not depend on how pages are divided, nor on their order."""

import random

import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from textmill.pipelines.readers import page_hosts
from textmill.pipelines.readers.html_text import Page
from textmill.pipelines.readers.page_hosts import (
    Host,
    PageHosts,
    ShortPage,
    WebPage,
    count_pages,
    host_of,
)
from textmill.schemas.errors import DataError
from textmill.schemas.format.drops import total_observed

PAGES = st.tuples(
    st.builds("https://{}.example/{}".format, st.sampled_from("abcdefg"), st.integers(0, 9))
    | st.just(""),
    st.builds(Page, st.sampled_from(["one", "two"]), share=st.sampled_from([0.0, 0.05, 1.0])),
)


def count(pages):
    return count_pages([WebPage.of(url, page) for url, page in pages])


def hash_of(name):
    return xxhash.xxh3_64_intdigest(name.encode())


@settings(max_examples=50)
@given(st.lists(PAGES, max_size=40), st.data())
def test_any_division_and_order_give_the_same(pages, data):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page_hosts, "MOST_HOSTS", 4)
        whole = count(pages)
        shuffled = data.draw(st.permutations(pages))
        cuts = sorted(data.draw(st.lists(st.integers(0, len(pages)), max_size=5)))
        bounds = zip([0, *cuts], [*cuts, len(pages)], strict=True)
        parts = [count(shuffled[start:stop]) for start, stop in bounds]
        observed = total_observed(part for part, _ in parts)
        hosts = [part for _, part in parts]
        inner = PageHosts.sum(hosts[1:])  # a tree of sums, as runners build it
        assert (observed, PageHosts.sum([inner, *hosts[:1]])) == whole
        assert list(whole[1].broken_equations(observed)) == []
        names = {host_of(url) for url, _ in pages} - {""}
        kept = sorted(names, key=hash_of)[:4]
        assert {*whole[1].hosts} == {*kept}
        for name, host in whole[1].hosts.items():
            own = [page.is_short for url, page in pages if host_of(url) == name]
            assert (host.pages, host.short_pages) == (len(own), sum(own))


def test_pages_of_hosts_are_counted_and_sampled():
    short, whole = Page("Ready for\n more?", share=0.03), Page("A text")
    pages = [("https://A.example:80/1", short), ("http://a.example/2", whole)]
    pages += [("https://b.example/", whole), ("", short), ("urn:x", whole)]
    sample = ShortPage("https://A.example:80/1", 0.03, "Ready for more?")
    assert count(pages) == (
        {
            "web_pages": {
                "pages": 5,
                "short_main_text": 2,
                "pages_without_host": 2,
                "short_main_text_without_host": 1,
            }
        },
        PageHosts({"a.example": Host(2, 1, (sample,)), "b.example": Host(1)}),
    )
    assert count([]) == ({}, PageHosts())


def test_long_urls_are_cut():
    short = Page("", share=0.0)
    cut = "https://a.example/" + "x" * 282 + "…"
    urls = [cut[:-1] + "yyy", "https://" + "user" * 99 + "@a.example/"]
    observed, found = count([(url, short) for url in urls])
    assert found == PageHosts({"a.example": Host(1, 1, (ShortPage(cut, 0.0, ""),))})
    assert list(found.broken_equations(observed)) == []


def test_the_samples_of_a_host_are_those_with_the_smallest_hashes():
    urls = [f"https://a.example/{n}" for n in range(30)]
    random.Random(0).shuffle(urls)
    _, pages = count([(url, Page("x" * 500, share=0.01)) for url in urls])
    assert [(one.url, one.excerpt) for one in pages.hosts["a.example"].samples] == [
        (url, "x" * 100) for url in sorted(urls, key=hash_of)[:3]
    ]


def test_a_thousand_hosts_are_kept_with_exact_counts():
    pages = [(f"https://h{n % 1500}.example/", Page("text")) for n in range(3000)]
    observed, found = count(pages)
    names = sorted((f"h{n}.example" for n in range(1500)), key=hash_of)
    assert found == PageHosts(dict.fromkeys(names[:1000], Host(2)))
    assert list(found.broken_equations(observed)) == []
    too_few = {"web_pages": {"pages": 1999}}
    assert list(found.broken_equations(too_few)) == [
        "hosts have 2,000 pages, but web_pages counts 1,999"
    ]


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://user@WWW.a.example:8080/x?y", "www.a.example"),
        ("http://[::1]/", "::1"),
        ("//b.example/x", "b.example"),
        ("http://[broken/", ""),
        ("dns:a.example", ""),
        ("https://" + "a" * 254 + "/", ""),
        ("https://blåbær.example/", "blåbær.example"),
    ],
)
def test_hosts(url, host):
    assert host_of(url) == host


SAMPLE = ShortPage("https://a.example/", 0.01, "")


@pytest.mark.parametrize(
    ("host", "problem"),
    [
        (Host(3, 1, (SAMPLE,)), "hosts have 3 pages, but web_pages counts 2"),
        (Host(2, 2, (SAMPLE,)), "hosts have 2 short_pages, but web_pages counts 1"),
        (Host(2, 1), "samples of 'a.example' are missing, or not sorted by the hash of the URL"),
        (
            Host(2, 1, (ShortPage("https://b.example/", 0.01, ""),)),
            "a sample of 'a.example' has the URL 'https://b.example/'",
        ),
    ],
)
def test_contradictions_are_found(host, problem):
    observed = {"web_pages": {"pages": 2, "short_main_text": 1}}
    assert list(PageHosts({"a.example": host}).broken_equations(observed)) == [problem]


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: Host(1, 2), "short_pages is 2, but pages 1"),
        (lambda: Host(-1), "pages is -1"),
        (lambda: Host(5, 1, (SAMPLE, SAMPLE)), "2 samples of 1 short pages"),
        (lambda: ShortPage("", 0.1, ""), "share is 0.1: must be from 0 to below 0.1"),
        (
            lambda: PageHosts(dict.fromkeys(map(str, range(1001)), Host())),
            "hosts has 1,001 hosts, at most 1,000",
        ),
    ],
)
def test_impossible_values_are_rejected(make, problem):
    with pytest.raises(DataError, match=problem):
        make()
