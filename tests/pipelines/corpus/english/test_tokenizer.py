"""English words: what is cut where, that nothing is lost, and that documents stand alone."""

import re

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.tools.filter_factory import english_words_of
from textmill.pipelines.corpus.english.tokenizer import cut

# By the rules of spaCy 3.8 for English, of which each was looked up.
CUT = {
    "plain words": ("It is so.", "It|is|so|."),
    "contractions": ("don't CAN'T you'll've dont it’s", "do|n't|CAN'T|you|'ll|'ve|do|nt|it|’s"),
    "two words": ("I cannot, gonna let's", "I|can|not|,|gon|na|let|'s"),
    "other words": ("its well ill shell", "its|well|ill|shell"),
    "quotes": ("\"'Tis', he said.\"", "\"|'|Tis|'|,|he|said|.|\""),
    "owner": ("John's dogs'", "John|'s|dogs|'"),
    "abbreviations": ("Mr. X, e.g. (U.S.) Ph.D.", "Mr.|X|,|e.g.|(|U.S.|)|Ph.D."),
    "full stops": ("NATO. I. me.", "NATO|.|I.|me|."),
    "hyphens": ("well-known 3-4 a--b -x x-", "well|-|known|3|-|4|a|--|b|-x|x-"),
    "numbers": ("1,000 3.5% $5.20 10am 5km +3", "1,000|3.5|%|$|5.20|10|am|5|km|+3"),
    "no space": ("end.Then a,b x/y x:y", "end|.|Then|a|,|b|x|/|y|x|:|y"),
    "addresses": ("see www.a-b.com/x,y http://x.org", "see|www.a-b.com/x,y|http://x.org"),
    "ellipses": ("so...what… a..", "so|...|what|…|a|.."),
    "faces": ("nice :) (see 8) done): no", "nice|:)|(|see|8)|done|):|no"),
    "degrees": ("5 °C. 6°F. ˈa", "5|°|C|.|6|°|F|.|ˈa"),
    "other scripts": ("naïve—Øre 中文。 ½ ©2020", "naïve|—|Øre|中文|。|½|©|2020"),
    "white space": (" a\t\tb\u2003c\n", "a|b|c"),
}


@pytest.mark.parametrize(("text", "words"), CUT.values(), ids=CUT)
def test_words_by_hand(text, words):
    assert english_words_of([text]) == [words.split("|")]


PIECES = st.sampled_from(
    [*"aZ9.,'\"-()/:$#°s \n…é中€😀", "n't", "don't", "Mr.", "...", "5km", ".com"]
)
EVERY = " ".join(chr(point) for point in range(0x20000) if not 0xD800 <= point < 0xE000)
TEXTS = st.one_of(st.text(max_size=40), st.lists(PIECES, max_size=20).map("".join))


@example(["x" * 70_000 + '"' * 70_000, EVERY])  # longer than a chunk may be
@given(st.lists(TEXTS, max_size=6))
def test_nothing_but_white_space_is_lost_and_documents_stand_alone(documents):
    together = english_words_of(documents)
    assert together == [words for one in documents for words in english_words_of([one])]
    for document, words in zip(documents, together, strict=True):
        assert "".join(words) == "".join(document.split())
        assert all(words)
        # No word goes over white space.
        assert [c for c in " ".join(words).split()] == words


@given(TEXTS)
def test_spaces_come_between_words_where_they_are_asked_for(text):
    data = np.frombuffer(text.encode() or b" ", np.uint8)[: len(text.encode())]
    pieces = np.array([[0], [len(data)]])
    spans, _ = cut(data, pieces, spaces=True)
    found = [data[a:b].tobytes().decode() for a, b in spans.T.tolist()]
    plain, _ = cut(data, pieces)
    assert [word for word in found if not word.isspace()] == [
        data[a:b].tobytes().decode() for a, b in plain.T.tolist()
    ]
    # Each run of white space but for the one space that belongs to the word before it.
    runs = re.findall(r"\s+", re.sub(r"(?<=\S) ", "", text))
    assert len([word for word in found if word.isspace()]) == len(runs)
