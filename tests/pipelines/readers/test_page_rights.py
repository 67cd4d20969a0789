"""Licences and reservations of rights: elements and headers by hand, in WARC and HTML files."""

import pytest

from tests.tools.read_sources import read_all, rows_of
from textmill.pipelines.readers.documents import Role
from textmill.pipelines.readers.html_text import Extraction
from textmill.pipelines.readers.main_text import parse_html
from textmill.pipelines.readers.page_rights import RIGHTS, find_rights, rights_fields

BY = "https://creativecommons.org/licenses/by/4.0/"
ZERO = "//CreativeCommons.org/publicdomain/zero/1.0/"
ROLES = (Role("text", "string", "text"),) + tuple(
    Role(name, "field", name, optional=True) for name in RIGHTS
)


def rights_of(markup: str) -> dict[str, str]:
    found = rights_fields(find_rights(parse_html(markup).document))
    return {name: value for name, value in found.items() if value}


ELEMENTS = [
    ('<meta name="robots" content="noindex,noai">', {"robots": "noindex, noai"}),
    ("<META NAME=Robots CONTENT=' NoAI , NOAI'>", {"robots": "noai"}),
    (
        "<meta name=robots content=noai><body><meta name=robots content=noindex>",
        {"robots": "noai, noindex"},
    ),
    ("<meta name=googlebot content=noai>", {}),
    ("<meta property=robots content=noai>", {}),
    ("<meta name=robots>", {}),
    ("<meta name=tdm-reservation content=1>", {"tdm_reservation": "1"}),
    (
        "<meta name=TDM-Reservation content=' 0 '><a name=robots content=x>y</a>",
        {"tdm_reservation": "0"},
    ),
    ("<meta name=tdm-reservation content=yes>", {}),
    (
        "<meta name=tdm-reservation content=0><meta name=tdm-reservation content=1>",
        {"tdm_reservation": "1"},
    ),
    ("<meta name=tdm-policy content=' https://a/p q '>", {"tdm_policy": "https://a/p%20q"}),
    (f"<a rel=license href={BY}>x</a>", {"license": BY}),
    ("<link rel='LICENSE' href='/terms'>", {"license": "/terms"}),
    ("<a rel='nofollow license' href=/t>x</a>", {"license": "/t"}),
    ("<a rel=licensed href=/t>x</a>", {}),
    (f"<a href='{BY}'>x</a><a rel=license href='{BY}'>y</a>", {"license": BY}),
    (f"<a rel=license href=/t>x</a><a href='{BY}deed.nb'>x</a>", {"license": f"/t {BY}deed.nb"}),
    (f"<a href='{ZERO}'>x</a>", {"license": ZERO}),
    ("<a href='https://creativecommons.org/about'>x</a>", {}),
    (f"<p>{BY}</p>", {}),
    (f"<!-- <a href={BY}> --><p title='<meta name=robots content=noai>'>x</p>", {}),
]


@pytest.mark.parametrize(("markup", "expected"), ELEMENTS, ids=str)
def test_elements_that_have_rights(markup, expected):
    assert rights_of(markup) == expected


def test_a_field_is_bounded():
    many = "<!doctype html><!-- x --><meta name=robots content=noai>" + "".join(
        f"<a rel=license href=/{number:0100}>x</a>" for number in range(10_000)
    )
    found = rights_of(many + f"<meta name=tdm-policy content={'a' * 9000}>")
    assert found["license"].split(" ") == [f"/{number:0100}" for number in range(19)]
    assert found["robots"] == "noai"
    assert len(found["tdm_policy"]) == 2000


@pytest.mark.parametrize(
    ("element", "header", "expected"),
    [
        ("", "1", "1"),
        ("0", "1", "1"),
        ("1", "0", "1"),
        ("", "0, 1", "1"),
        ("", "0", "0"),
        ("", "true", ""),
    ],
)
def test_a_reservation_in_an_element_or_a_header_counts(element, header, expected):
    fields = rights_fields(("", element, "", ""), {"tdm-reservation": header})
    assert fields["tdm_reservation"] == expected


def write_warc(path, *responses: tuple[str, str]):
    """Responses of headers and a body, in a WARC file."""
    records = []
    for number, (headers, body) in enumerate(responses):
        content = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n{headers}\r\n{body}".encode()
        head = (
            f"WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: https://a.example/{number}\r\n"
            f"Content-Length: {len(content)}\r\n\r\n"
        )
        records.append(head.encode() + content + b"\r\n\r\n")
    path.write_bytes(b"".join(records))
    return path


def rights_in(path, **settings):
    extraction = Extraction("all", rights=settings.pop("rights", True))
    rows = rows_of(read_all(str(path), roles=ROLES, extraction=extraction))
    return [{name: row[name] for name in RIGHTS if row[name]} for row in rows]


def test_fields_of_responses(tmp_path):
    path = write_warc(
        tmp_path / "a.warc",
        ("", "<p>plain</p>"),
        (
            "X-Robots-Tag: noindex\r\nTDM-Reservation: 1\r\ntdm-policy: https://a.example/h\r\n"
            "x-robots-tag: otherbot: NOAI,\r\n unavailable_after: 25 Jun 2030 15:00:00 PST\r\n",
            "<meta name=tdm-policy content=https://a.example/e><p>headers</p>",
        ),
        ("tdm-policy: https://a.example/h\r\n", f"<p>element <a rel=license href={BY}>CC</a></p>"),
    )
    assert rights_in(path) == [
        {},
        {
            "tdm_reservation": "1",
            "tdm_policy": "https://a.example/e",
            "x_robots_tag": "noindex, otherbot: noai, unavailable_after: 25 jun 2030 15:00:00 pst",
        },
        {"tdm_policy": "https://a.example/h", "license": BY},
    ]
    assert rights_in(path, rights=False) == [{}, {}, {}]


def test_fields_of_html_and_wet_files(tmp_path):
    page = f"<meta name=robots content=noai><p>A page <a rel=license href={BY}>CC</a></p>"
    (tmp_path / "a.html").write_text(page)
    assert rights_in(tmp_path / "a.html") == [{"robots": "noai", "license": BY}]
    (tmp_path / "a.warc.wet").write_bytes(
        b"WARC/1.0\r\nWARC-Type: conversion\r\nContent-Type: text/plain\r\n"
        b"Content-Length: 4\r\n\r\ntext\r\n\r\n"
    )
    assert rights_in(tmp_path / "a.warc.wet") == [{}]
