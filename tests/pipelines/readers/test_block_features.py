"""Measures of blocks by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from textmill.pipelines.readers.block_features import (
    BLOCK_FEATURES,
    FEATURES,
    PAGE_FEATURES,
    SHIFTED,
    expand,
    measure_blocks,
)
from textmill.pipelines.readers.main_text import parse_html
from textmill.pipelines.readers.page_scan import scan


def measure(page):
    markup = str(parse_html(page)).encode("utf-8", "replace")
    return measure_blocks(markup, *scan(np.frombuffer(markup, np.uint8)))


def values(blocks, name):
    return blocks.features[:, BLOCK_FEATURES.index(name)].tolist()


@pytest.mark.parametrize(
    ("text", "size", "sentences", "commas", "end"),
    [
        ("One, two. Three", 13, 1, 1, 0),
        ("One, two. Three.", 14, 2, 1, 1),
        ("“One.” Three!", 12, 1, 0, 1),
        ("Pi is 3.14:", 9, 0, 0, 2),
        ("a &amp; b", 3, 0, 0, 0),
        ("街角的图书馆，开门。", 26, 1, 1, 1),  # eight ideographs and two signs
        ("図書館は九時に、開く。", 26, 1, 1, 1),  # six ideographs, three kana and two signs
        ("한국어", 9, 0, 0, 0),
        ("ห้อง", 4, 0, 0, 0),
        ("Да, это так.", 10, 1, 1, 1),
        ("مرحبا، كيف؟", 10, 1, 1, 1),
        ("यह है।", 5, 1, 0, 1),
    ],
)
def test_text_is_measured_alike_in_all_scripts(text, size, sentences, commas, end):
    blocks = measure(f"<p>{text}</p>")
    assert blocks.sizes.tolist() == [size]
    assert values(blocks, "sentences") == [sentences]
    assert values(blocks, "commas") == [np.float32(commas) / np.float32(size)]
    assert values(blocks, "end") == [end]


PAGE = (
    "<nav class='main-menu'><ul><li><a href=/>Home</a></li><li><a href=/b>Blog</a></li></ul></nav>"
    "<article><h1>A library</h1>"
    "<p>The library on the corner opens at nine, and children come here to read until it is dark."
    "</p>"
    "<p>By <a href=/ann>Ann</a><br>2024</p></article>"
    "<footer hidden>Home</footer>"
)


def test_the_blocks_of_a_page():
    blocks = measure(PAGE)
    sizes = [4, 4, 8, 72, 9, 4]
    assert blocks.sizes.tolist() == sizes
    total = sum(sizes)
    assert values(blocks, "link share") == pytest.approx([1, 1, 0, 0, 3 / 9, 0])
    assert values(blocks, "links") == [1, 1, 0, 0, 1, 0]
    assert values(blocks, "breaks") == [0, 0, 0, 0, 1, 0]
    assert values(blocks, "text before") == pytest.approx(
        [sum(sizes[:n]) / total for n in range(6)]
    )
    assert values(blocks, "after title") == [-2, -1, 0, 1, 2, 3]
    assert values(blocks, "path count") == [2, 2, 1, 2, 2, 1]
    assert values(blocks, "in article") == [0, 0, 1, 1, 1, 0]
    assert values(blocks, "share of nav") == pytest.approx([8 / total] * 2 + [0] * 4)
    assert values(blocks, "share of footer") == pytest.approx([0] * 5 + [4 / total])
    assert values(blocks, "nested ul/ol") == [1, 1, 0, 0, 0, 0]
    assert values(blocks, "hidden") == [0, 0, 0, 0, 0, 1]
    assert values(blocks, "navigation share") == pytest.approx([8 / total] * 2 + [2] * 4)
    assert values(blocks, "navigation distance") == [2, 2, 99, 99, 99, 99]  # li, ul, nav
    assert values(blocks, "article share") == pytest.approx([-1, -1, *[89 / total] * 3, -1])
    assert values(blocks, "container 1 blocks") == [2, 2, 3, 3, 3, 6]
    assert values(blocks, "container 2 blocks") == [6] * 6
    assert values(blocks, "container 1 order") == pytest.approx([0, 1, 0, 0.5, 1, 1])
    assert values(blocks, "repeats") == [2, 1, 1, 1, 1, 2]
    assert values(blocks, "is repeat") == [0, 0, 0, 0, 0, 1]
    assert values(blocks, "since long") == [999, 999, 999, 999, 1, 2]
    assert values(blocks, "until long") == [3, 2, 1, 999, 999, 999]
    assert values(blocks, "window 2 long") == pytest.approx(
        [0, 72 / 88, 72 / 97, 72 / 97, 72 / 93, 72 / 85]
    )
    page = dict(zip(PAGE_FEATURES, blocks.page.tolist(), strict=True))
    assert (page["page size"], page["page blocks"], page["page articles"]) == (total, 6, 1)
    assert (page["page longest"], page["page is product"]) == (72, 0)


def test_neighbours_and_the_page_are_features_of_a_block():
    blocks = measure(PAGE + '<script type="application/ld+json">{"@type": "Product"}</script>')
    expanded = expand(blocks)
    assert expanded.shape == (6, len(FEATURES))
    before = len(BLOCK_FEATURES) + SHIFTED.index(("size", -1))
    after = len(BLOCK_FEATURES) + SHIFTED.index(("size", 2))
    assert expanded[:, before].tolist() == [4, 4, 4, 8, 72, 9]  # the first is its own neighbour
    assert expanded[:, after].tolist() == [8, 72, 9, 4, 4, 4]
    assert expanded[:, -3].tolist() == [1] * 6


@pytest.mark.parametrize(
    ("head", "kinds"),
    [
        ("", [0, 0, 0]),
        ('<script>{"@type":"Product"}</script>', [1, 0, 0]),
        ('<script>{"@type":"Products", "Product:"}</script>', [0, 0, 0]),
        ('<meta property="og:type" content="product.item">', [1, 0, 0]),
        ('<meta property="og:type" content="article">', [0, 1, 0]),
        ('<meta property="og:type" content="website">', [0, 0, 0]),
        ('<script>["NewsArticle", "QAPage"]</script>', [0, 1, 1]),
        ('<script>["BlogPosting"]</script>', [0, 1, 0]),
        ("<script>BlogPosting, DiscussionForumPosting</script>", [0, 0, 1]),
    ],
)
def test_kinds_of_a_page_by_its_metadata(head, kinds):
    assert measure(f"<head>{head}</head><p>text").page[-3:].tolist() == kinds


@given(
    st.lists(
        st.sampled_from(
            [
                "<div>",
                "</div>",
                "<p class='x y'>",
                "<a>",
                "</a>",
                "w ",
                "<br>",
                "<ul><li>",
                "é",
                "图",
            ]
        )
    )
)
def test_measures_of_any_page_are_numbers(pieces):
    markup = str(parse_html("".join(pieces))).encode()
    elements, runs, count = scan(np.frombuffer(markup, np.uint8))
    if count:
        blocks = measure_blocks(markup, elements, runs, count)
        assert np.isfinite(blocks.features).all() and np.isfinite(blocks.page).all()
        assert (blocks.sizes > 0).all()
        shares = [n for n, name in enumerate(BLOCK_FEATURES) if name in ("link share", "order")]
        assert ((blocks.features[:, shares] >= 0) & (blocks.features[:, shares] <= 1)).all()
