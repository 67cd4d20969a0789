"""Long tags beside a pattern of what a tag is."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from textmill.pipelines.readers.page_guard import count_tags

# Matches a page up to a tag with a thousand attributes.
TAG_END = (
    rb"""(?:[^>\s/=]*+(?:[\s/]++|=\s*+(?:"[^"]*+"?+|'[^']*+'?+|[^\s>"'][^\s>]*+)?+[\s/]*+)){0,MOST}+"""
    rb"""[^>\s/=]*+(?:>|\Z)"""
)
LONG_TAG = rb"""[^<]*+(?:(?:
    <(?i:script|style)(?=[\s/>])TAG_END[^<]*+(?:<(?!/[sS])[^<]*+)*+
    | </?[a-zA-Z][^>\s/=]*+(?:[ ][a-z-]++="[^"]*+"){0,9}+TAG_END
    | <!--[^-]*+(?:-(?!->)[^-]*+)*+
    | <(?!/?[a-zA-Z])
    )[^<]*+)*+</?[a-zA-Z]"""


def pattern(most):
    text = LONG_TAG.replace(b"TAG_END", TAG_END).replace(b"MOST", b"%d" % most)
    return re.compile(text, re.VERBOSE)


LONG = pattern(999)
PIECES = [
    *(
        "<a",
        "<p ",
        "</div ",
        "</",
        "<",
        "<s",
        "<S",
        "<script",
        "<STYLE",
        "</script>",
        "</S",
        "<!--",
    ),
    *("-->", "--", "->", "-", "<!", "<?", ">", "/", "=", '"', "'", " ", "\n", "\v", "\x1c", "é"),
    *(" b", " b=1", ' b="1"', ' b-c="<d e>"', " b='1' ", ' B="1"', " b=/ ", "\xa0", "\u3000", "w"),
]


@pytest.mark.parametrize("most", [0, 1, 3])
@given(st.lists(st.sampled_from(PIECES), max_size=40))
def test_the_same_as_a_pattern_of_short_tags(most, pieces):
    data = "".join(pieces).encode()
    assert count_tags(data, most)[1] == bool(pattern(most).match(data))


@pytest.mark.parametrize("start", ["<p", "</p", "<script", "<style", "<é", "<!-- <p", "x <!-p"])
@pytest.mark.parametrize(
    "piece", [" a", " a=1", ' a="\'>"', " a='>'", "/", "/a", "=", "= ", " a=\t"]
)
@pytest.mark.parametrize("count", [997, 998, 999, 1000, 1008, 1009, 1010])
def test_the_same_as_a_pattern(start, piece, count):
    data = f"a<b>{start}{piece * count}".encode()
    for end in (b"", b">", b"b>", b" b>", b"=>", b"='>'", b"='"):
        assert count_tags(data + end)[1] == bool(LONG.match(data + end)), end


def test_tags_are_counted():
    assert count_tags(b"") == (0, False)
    assert count_tags("<p>é<<br> 1 > 0".encode()) == (3, False)
    assert count_tags(b"<p" + b" a" * 1000 + b">") == (1, True)
