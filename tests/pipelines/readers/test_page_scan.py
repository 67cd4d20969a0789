"""Elements and blocks of pages by hand, and of damaged pages."""

import time

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from resiliparse.parse.html import HTMLTree

from textmill.pipelines.readers.page_scan import (
    ARIA_HIDDEN,
    ARTICLE_BODY,
    BREAK,
    DESCRIPTION,
    HIDDEN,
    LINK,
    POST_TEXT,
    SPACE,
    TAGS,
    TEX,
    TEX_DISPLAY,
    TEXT,
    WORDS,
    scan,
)

NAMES = {code: name for name, code in TAGS.items()} | {0: "?"}
SIGNS = {TEXT: "", LINK: "@", SPACE: "_", BREAK: "|", TEX: "$", TEX_DISPLAY: "$$"}


def markup_of(page):
    return str(HTMLTree.parse(page)).encode("utf-8", "replace")


def blocks_of(page):
    """Pieces of each block: "text", "@link", "_" (space), "|" (break), "$tex"."""
    markup = markup_of(page)
    _, runs, number = scan(np.frombuffer(markup, np.uint8))
    blocks = [[] for _ in range(number)]
    for start, stop, _, block, kind in zip(*runs, strict=True):
        text = markup[start:stop].decode()
        blocks[block].append(SIGNS[kind] + ("" if kind == SPACE else text))
    return blocks


def elements_of(page):
    """Name, number of the parent, and flags of each element in the body."""
    elements, _, _ = scan(np.frombuffer(markup_of(page), np.uint8))
    columns = (elements.tags, elements.parents, elements.flags)
    found = [(NAMES[tag], parent, flags) for tag, parent, flags in zip(*columns, strict=True)]
    assert [name for name, _, _ in found[:4]] == ["?", "html", "head", "body"]
    return found[4:]


def test_blocks_end_where_block_elements_do():
    page = "a<p>b <b>c</b><br>d</p>e<div>f<div>g</div>h<br><br>i</div><ul><li>j<li>k</ul>"
    assert blocks_of(page) == [
        ["a"],
        ["b ", "c", "|", "d"],
        ["e"],
        ["f"],
        ["g"],
        ["h", "|"],
        ["i"],
        ["j"],
        ["k"],
    ]


def test_links_and_spaces():
    page = "<p> <a href='/?a>b'>one</a> <i>&nbsp;</i><a>two <b>three</b></a> four<p> &nbsp;<hr> <p>"
    assert blocks_of(page) == [["@one", "_", "_", "@two ", "@three", " four"]]


@pytest.mark.parametrize(
    "page",
    ["", "<body> <p></p>", "<script>a</script><style>b</style><textarea>c</textarea><!-- d -->"]
    + ["<select><option>a</select><svg><text>b</text></svg><template><p>c</template>"]
    + ["<title>a</title>", "<plaintext>a<p>", "<script>'</p>' + '<p>a</p>'</script>"]
    + ["<p><span hidden>a</span><i style='color: red; display : x; display: none'>b</i>"],
)
def test_pages_without_text(page):
    assert blocks_of(page) == []


def test_odd_markup():
    page = (
        "<P TITLE=\"a > b &quot;c&quot;\" data-x='<p>'>one<!-- <p> -- > -->two<?x y?><WBR>three"
        "<noscript>four</noscript><![CDATA[five]]><script>'</p>'</script>six <img alt='seven'> 8"
    )
    assert blocks_of(page) == [["one", "two", "three"], ["four"], ["six ", " 8"]]


def test_elements_and_what_their_attributes_tell():
    page = (
        '<div hidden><p style="Display:x;display: none">a</p></div><article itemprop=articleBody>'
        "<br><x-y itemprop=text><span aria-hidden=true>b</span></x-y><img>"
        "<p itemprop=description aria-hidden=false>c</p></article><script><p></script>"
    )
    assert elements_of(page) == [
        ("div", 3, HIDDEN),
        ("p", 4, HIDDEN),
        ("article", 3, ARTICLE_BODY),
        ("?", 6, POST_TEXT),
        ("?", 7, ARIA_HIDDEN),
        ("p", 6, DESCRIPTION),
        ("script", 3, 0),
    ]
    assert blocks_of(page) == [["a"], ["b"], ["c"]]


def test_elements_are_found_again_at_their_first_bytes():
    markup = markup_of("<p class=a>one <b>two</b><ol start=3><li>three")
    elements, _, _ = scan(np.frombuffer(markup, np.uint8))
    names = [markup[begin:].split(b">")[0] for begin in elements.begins[1:]]
    assert names == [
        b"<html",
        b"<head",
        b"<body",
        b'<p class="a"',
        b"<b",
        b'<ol start="3"',
        b"<li",
    ]
    assert elements.depths.tolist() == [0, 1, 2, 2, 3, 4, 3, 4]


def test_elements_of_equal_names_and_first_classes_have_equal_paths():
    page = "<p class='a b'><p class='a c' id=d><p class=b><div><p class='a b'></div><h2 class='a'>"
    elements, _, _ = scan(np.frombuffer(markup_of(page), np.uint8))
    first, second, third, _, inside, heading = elements.paths[4:].tolist()
    assert first == second
    assert len({first, third, inside, heading}) == 4


@pytest.mark.parametrize(
    ("attributes", "groups"),
    [
        ('class="post-12 mainContent"', {"content"}),
        ('id="CommentList"', {"posts", "card"}),
        ('role="navigation"', {"surroundings", "navigation"}),
        ('class="footer-fixed" id="site"', {"surroundings", "footer"}),
        ('class="posting xmenu contentment"', set()),
        ('data-class="post" title="menu"', set()),
        ('class=""', set()),
    ],
)
def test_words_of_classes_ids_and_roles(attributes, groups):
    elements, _, _ = scan(np.frombuffer(markup_of(f"<p {attributes}>"), np.uint8))
    found = {name for bit, name in enumerate(WORDS) if elements.groups[4] >> bit & 1}
    assert found == groups


ANNOTATION = '<annotation encoding="application/x-tex">x^2</annotation>'


@pytest.mark.parametrize(
    ("page", "blocks"),
    [
        ("<p>a <math alttext='x&lt;1'><mi>x</mi></math> b", [["a ", "$x&lt;1", " b"]]),
        (f"<math display=block><semantics><mi>x</mi>{ANNOTATION}</semantics></math>", [["$$x^2"]]),
        ("<p>a <math><mi>x</mi></math>", [["a ", "x"]]),
        ("<p><script type='math/tex'>x<y</script> b", [["$x<y", " b"]]),
        ("<p><script type='math/tex; mode=display'>x</script>", [["$$x"]]),
        (
            f"<p>a <span hidden><math>{ANNOTATION}</math></span><img alt=x> b",
            [["a ", "$x^2", " b"]],
        ),
        (f"<p><math>{ANNOTATION}</math><i aria-hidden=true>x2</i> b", [["$x^2", " b"]]),
        ("<p>a <i aria-hidden=true>seen</i>", [["a ", "seen"]]),
    ],
)
def test_formulas(page, blocks):
    assert blocks_of(page) == blocks


PAGE = markup_of(
    "<title>t</title><body class='x post'>a &amp; b<!-- c --><p hidden>d<br><br>e</p><ul><li>f"
    f"<li><a href=/>g</a></ul><math alttext=x>{ANNOTATION}</math><script type='math/tex'>y</script>"
    "<table><tr><th>h<td>i</table><pre> j\n</pre><p style='display: none'>\u4e2d"
)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(PAGE)), st.integers(0, 9), st.binary(max_size=4))))
@example([])
@example([(0, 0, b"</p></b>")])
def test_damaged_pages_have_text_in_order(changes):
    page = PAGE
    for at, length, piece in changes:
        page = page[:at] + piece + page[at + length :]
    markup = markup_of(page.decode("utf-8", "replace"))
    elements, runs, number = scan(np.frombuffer(markup, np.uint8))
    bounds = np.stack([runs.starts, runs.stops], 1).ravel()
    assert (np.diff(bounds, prepend=0, append=len(markup)) >= 0).all()
    steps = np.diff(runs.blocks, prepend=-1, append=number - 1)
    assert ((steps == 0) | (steps == 1)).all()
    assert (elements.parents < np.arange(len(elements.tags))).all()
    assert (elements.parents[1:] >= 0).all()
    assert ((runs.elements >= 0) & (runs.elements < len(elements.tags))).all()


@pytest.mark.parametrize(
    "piece",
    ["<", "<p>", "</p>", "<p", "<!--", "<!-- -->", "<math>", "<math alttext='", "<script>", "<a b="]
    + ["<script type='math/tex'>", "<p style='display:", "&nbsp;", "<br>", "<p class='"],
)
def test_time_is_linear_in_the_page(piece):
    data = np.frombuffer((piece * (300_000 // len(piece))).encode(), np.uint8)
    began = time.process_time()
    scan(data)
    assert time.process_time() - began < 3  # not minutes
