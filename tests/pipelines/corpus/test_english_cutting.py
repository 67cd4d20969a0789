"""English words: what is cut where, that nothing is lost, and that documents stand alone."""

import json
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.corpus.english_cutting import cut, english_words
from tests.tools.filter_factory import column
from tests.tools.places import DATA


def words_of(*documents):
    """The words of each document."""
    found = []
    for words in english_words(column(documents)):
        data = words.data.tobytes()
        spans = [data[start:stop].decode() for start, stop in words.spans.T.tolist()]
        of = words.offsets.tolist()
        found += [spans[a:b] for a, b in zip(of, of[1:], strict=False)]
    return found


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
    assert words_of(text) == [words.split("|")]


PIECES = st.sampled_from(
    [*"aZ9.,'\"-()/:$#°s \n…é中€😀", "n't", "don't", "Mr.", "...", "5km", ".com"]
)
TEXTS = st.one_of(st.text(max_size=40), st.lists(PIECES, max_size=20).map("".join))


@given(st.lists(TEXTS, max_size=6))
def test_nothing_but_white_space_is_lost_and_documents_stand_alone(documents):
    together = words_of(*documents)
    assert together == [words for document in documents for words in words_of(document)]
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


def test_hard_strings_lose_nothing():
    if not (DATA / "hard").exists():
        pytest.skip("the texts of shared/data are not here")
    hard = json.loads((DATA / "hard/blns.json").read_text())
    for name in ("bmp-separated.txt", "sup-unseparated.txt", "utf8tests.txt"):
        hard.append((DATA / "hard" / name).read_text(errors="replace"))
    hard.append("x" * 70_000 + '"' * 70_000)  # longer than a chunk may be
    for document, words in zip(hard, words_of(*hard), strict=True):
        assert "".join(words) == "".join(document.split())
