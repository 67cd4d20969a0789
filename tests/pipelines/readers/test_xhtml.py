"""Markup of pages in XML as HTML: elements without content, text in CDATA, and hard markup."""

import time

import pytest

from textmill.pipelines.readers.xhtml import to_html

CASES = {
    "<title/>": "<title></title>",
    "<title />": "<title ></title>",
    '<script src="a.js"/><p>x</p>': '<script src="a.js"></script><p>x</p>',
    "<textarea/><iframe/><style/>": "<textarea></textarea><iframe></iframe><style></style>",
    '<a id="x"/>y<div class="z"/>': '<a id="x"></a>y<div class="z"></div>',
    "<br/><hr/><img src='a/b.png'/><br />": "<br/><hr/><img src='a/b.png'/><br />",
    "<a href='/b/'>x</a>": "<a href='/b/'>x</a>",
    "<a href='b'/>": "<a href='b'></a>",
    '<a title="1 > 2 /" />x': '<a title="1 > 2 /" ></a>x',
    '<a\n  href="b"\n/>x': '<a\n  href="b"\n></a>x',
    "<svg><path d='M 0 0'/></svg>": "<svg><path d='M 0 0'></path></svg>",
    "<svg:path/>": "<svg:path></svg:path>",
    "<!-- <title/> -->x<!---->": "<!-- <title/> -->x<!---->",
    "<![CDATA[1 < 2 & <b/>]]>x": "1 &lt; 2 &amp; &lt;b/&gt;x",
    "<script>a = '<p/>';</script><p/>": "<script>a = '<p/>';</script><p></p>",
    "<script>//<![CDATA[\na < b\n//]]></script>x": "<script>//<![CDATA[\na < b\n//]]></script>x",
    "<style>a > b {}</style><p/>": "<style>a > b {}</style><p></p>",
    "<?xml version='1.0'?><html/>": "<html></html>",
    "<?page a='>'?>x": "x",
    "<!DOCTYPE html PUBLIC 'a' 'b'><p/>": "<p></p>",
    "<!DOCTYPE html [<!ENTITY a 'b'> <!ENTITY c 'd'>]>\n<p/>": "\n<p></p>",
    "<p>a < b and c > d <q/></p>": "<p>a < b and c > d <q></q></p>",
    "<é/>x<1/>": "<é></é>x<1></1>",
    "</p/>x": "</p/>x",
    "no markup": "no markup",
    # Not to its end:
    "x<!-- <title/>": "x<!-- <title/>",
    "x<![CDATA[ <title/>": "x<![CDATA[ <title/>",
    "x<?page <title/>": "x<?page <title/>",
    "x<!DOCTYPE <title/": "x<!DOCTYPE <title/",
    "x<!DOCTYPE a [ b> <title/>": "x<!DOCTYPE a [ b> <title/>",
    "<script> <title/>": "<script> <title/>",
    "x<p a='b/><q/>": "x<p a='b/><q></q>",
}


@pytest.mark.parametrize("markup", CASES)
def test_elements_of_xml_are_whole(markup):
    assert to_html(markup) == CASES[markup]


@pytest.mark.parametrize(
    "piece",
    ["<", "<a ", "<a/", "<a '", '<a "', "<a b='c'", "<!--", "<![CDATA[", "<?", "<script>", "'\"/"]
    + ["<!DOCTYPE [", "<!DOCTYPE a [>", "<p/>", "<a b=/", "</script", "<script/>", "\n", "]]>"],
)
def test_markup_takes_linear_time(piece):
    began = time.process_time()
    to_html("<html>" + piece * (500_000 // len(piece)))
    assert time.process_time() - began < 4  # not minutes
