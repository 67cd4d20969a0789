import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest
import xxhash
from hypothesis import example, given
from hypothesis import strategies as st

from tests.tools.filter_factory import column
from textmill.pipelines.corpus.decontamination import matches
from textmill.pipelines.corpus.decontamination.finders import (
    add_holders,
    cut_out,
    find_common,
    find_holders,
)
from textmill.pipelines.corpus.decontamination.matches import (
    MOST_LISTED,
    Finder,
    Hit,
    add_hits,
    hits_file,
    judge_hits,
)
from textmill.pipelines.corpus.decontamination.ngram_index import (
    Targets,
    find_phrases,
    index_targets,
)

# Few words, so that n-grams repeat, overlap and share their beginnings.
WORDS = st.sampled_from(
    ["a", "A", "b", "c1", "é", "É", "Straße", "STRAßE", "rakfisklagene", "你好", "な"]
)
JOINTS = st.sampled_from([" ", ", ", "\n", " - ", "\u00a0"])
TEXTS = st.lists(st.tuples(WORDS, JOINTS), min_size=0, max_size=25).map(
    lambda pairs: "".join(word + joint for word, joint in pairs)
)


def targets_of(texts):
    count = len(texts)
    return Targets(
        (("targets.txt", "0"),),
        ("text",),
        column(texts),
        np.zeros(count, np.int64),
        np.zeros(count, np.int64),
        np.arange(count),
    )


def finder_of(texts, ngram, least, share=0.0):
    return Finder(index_targets(targets_of(texts), ngram=ngram, least=least, share=share))


def plain_words(text):
    """(word in small letters, first byte, byte after the last) of each."""
    return [
        (found[0].lower(), len(text[: found.start()].encode()), len(text[: found.end()].encode()))
        for found in re.finditer(r"[你好な]|[^\W_你好な]+", text)
    ]


def worth(words):
    """The number of words: "你" counts two thirds of one, "な" a third."""
    return sum({"你": 8, "好": 8, "な": 4}.get(word, 12) for word in words) / 12


def plain_grams(text, ngram, least):
    """Runs worth `ngram` words, none of which is so without its last one; or all of a text."""
    words = [word for word, _, _ in plain_words(text)]
    letters = sum(len(word) for word in words if word not in "你好な")
    if worth(words) < least and (worth(words) < max(least - 1, 1) or letters < 5 * least):
        return set()
    runs = [words[a:b] for a in range(len(words)) for b in range(a + 1, len(words) + 1)]
    return {tuple(run) for run in runs if worth(run) >= ngram > worth(run[:-1])} or {tuple(words)}


def plain_find(texts, document, ngram, least, share):
    """Text to the n-grams of it that are found, and the spans of all of these in the document."""
    words = plain_words(document)
    spelt = [word for word, _, _ in words]
    spans, held = set(), {}
    places = {
        tuple(spelt[start : start + size]): []
        for size in range(1, 3 * ngram + 1)
        for start in range(len(words) - size + 1)
    }
    for gram, found in places.items():
        starts = range(len(words) - len(gram) + 1)
        found += [start for start in starts if tuple(spelt[start : start + len(gram)]) == gram]
    for number, text in enumerate(texts):
        grams = plain_grams(text, ngram, least)
        found = {gram for gram in grams if gram in places}
        if found and len(found) >= math.ceil(share * len(grams) - 1e-9):
            held[number] = found
            for gram in found:
                spans |= {
                    (words[start][1], words[start + len(gram) - 1][2]) for start in places[gram]
                }
    return held, spans


@given(
    texts=st.lists(TEXTS, min_size=1, max_size=8, unique=True),
    documents=st.lists(TEXTS, max_size=6),
    sizes=st.tuples(st.integers(1, 5), st.integers(1, 5)).map(sorted),
    share=st.sampled_from([0.0, 0.3, 0.5, 1.0]),
)
def test_what_is_found_is_what_a_search_word_by_word_finds(texts, documents, sizes, share):
    least, ngram = sizes
    found = finder_of(texts, ngram, least, share).find(column(documents))
    due = [plain_find(texts, document, ngram, least, share) for document in documents]
    assert {tuple(span) for span in found.spans.tolist()} == {
        (number, *span) for number, (_, spans) in enumerate(due) for span in spans
    }
    listed = {}
    for number, hit in found.hits:
        listed.setdefault(number, {})[hit.record] = hit
        assert hit.document == xxhash.xxh3_128_hexdigest(documents[number].encode())
    for number, (held, _) in enumerate(due):
        assert set(listed.get(number, {})) == set(held)
        for text, grams in held.items():
            hit = listed[number][text]
            assert (hit.found, hit.texts) == (len(grams), len(held))
            assert hit.overlap in documents[number]


@given(
    texts=st.lists(TEXTS, min_size=1, max_size=6, unique=True),
    documents=st.lists(TEXTS, max_size=6),
    limit=st.integers(1, 3),
    cut=st.integers(0, 6),
)
def test_common_ngrams_stand_in_more_different_documents_than_the_limit(
    texts, documents, limit, cut
):
    finder = finder_of(texts, 3, 2)
    parts = [find_holders(finder, column(part)) for part in (documents[:cut], documents[cut:])]
    holders = add_holders([add_holders([part], limit) for part in parts], limit)
    assert np.array_equal(holders, add_holders(parts[::-1], limit))
    common = find_common(holders, limit)
    grams = set().union(*(plain_grams(text, 3, 2) for text in texts))
    due = {
        gram
        for gram in grams
        if sum(plain_find([" ".join(gram)], d, 3, 2, 1)[0] != {} for d in set(documents)) > limit
    }
    index = finder.index
    spelt = [tuple(word for word, _, _ in plain_words(index.text_of(g))) for g in common.tolist()]
    assert sorted(spelt) == sorted(due)
    kept = Finder(index.without(common, np.zeros(len(texts), bool)))
    for number, document in enumerate(documents):
        found = kept.find(column([document]))
        expected = any(
            gram not in due and plain_find([" ".join(gram)], document, 3, 2, 1)[0] for gram in grams
        )
        assert bool(len(found.spans)) == expected, number


def test_a_whole_text_counts_though_its_ngrams_are_common():
    """A text of five n-grams; another shares two of these, which do not count for it."""
    text, other = "one two three four five six seven eight", "two three four five six two"
    index = finder_of([text, other], 4, 3).index
    common = np.flatnonzero([index.text_of(g) in text for g in range(len(index.hash_G))])
    documents = [f"x {text} y", text.upper(), text[:-1], "two three four five six", other]
    for is_whole, total, held in (
        (True, [5, 1], [(0, 0), (1, 0), (4, 1)]),
        (False, [0, 1], [(4, 1)]),
    ):
        kept = index.without(common, np.array([is_whole, False]))
        assert (kept.total_T.tolist(), kept.need_T.tolist()) == (total, [max(total[0], 1), 1])
        found = Finder(kept).find(column(documents))
        assert [(number, hit.record) for number, hit in found.hits] == held
        if is_whole:
            assert (found.hits[0][1].found, found.hits[0][1].overlap) == (5, text)
            assert found.spans[:, 0].tolist() == [0] * 5 + [1] * 5 + [4]


def test_without_keeps_what_a_whole_text_shares_for_that_text_alone():
    texts = ["a1 b1 c1", "z1 a1 b1 c1"]
    index = finder_of(texts, 3, 2).index
    shared = [gram for gram in range(len(index.hash_G)) if index.text_of(gram) == "a1 b1 c1"]
    kept = index.without(np.array(shared), np.array([True, False]))
    assert (kept.total_T.tolist(), len(kept.hash_G)) == ([1, 1], 2)
    bounds = kept.bounds_G.tolist()
    of_gram = {
        kept.text_of(gram): kept.text_G[bounds[gram] : bounds[gram + 1]].tolist()
        for gram in range(len(kept.hash_G))
    }
    assert of_gram == {"a1 b1 c1": [0], "z1 a1 b1": [1]}


@pytest.mark.parametrize(
    ("text", "is_phrase"),
    [
        ("What is the capital of France?", False),
        ("Who wrote the first book of the Bible?", False),
        ("at the end of the day", True),  # 5 words of 13 letters
        ("as a matter of fact", True),
        ("for what it is worth, so to say", False),
        ("yes, yes, yes, yes, yes, yes and yes", True),
        ("rakfisklagene konkurrerer i fjellbygdene", False),  # 4 words of 38 letters
        ("Hvem er konge i Norge i dag", False),  # 6 words of 20 letters
        ("Hvem er konge i Norge nå", True),  # 6 words of 19 letters
        ("法国的首都是哪里", False),
        ("哈哈哈哈哈哈哈哈哈哈", True),
        ("", True),
    ],
)
def test_a_phrase_has_few_or_short_words(text, is_phrase):
    assert find_phrases(column(["", text, "x"]), 5).tolist() == [True, is_phrase, True]


def test_the_overlap_is_the_longest_run_of_common_words():
    target = "one two three four five six seven eight"
    document = "x One, two THREE y two three four - five six. z"
    found = finder_of([target], 3, 2).find(column(["none", document]))
    [(number, hit)] = found.hits
    assert (number, hit.record, hit.found, hit.texts) == (1, 0, 4, 1)
    assert hit.overlap == "two three four - five six"
    assert finder_of([target], 3, 2, 0.6).find(column([document])).hits
    assert not finder_of([target], 3, 2, 0.7).find(column([document])).hits


def test_a_document_is_listed_with_the_texts_of_which_most_is_found():
    texts = [f"alpha beta {number} gamma delta {number}" for number in range(MOST_LISTED + 5)]
    document = " . ".join(f"alpha beta {number}" for number in range(MOST_LISTED + 5))
    document += " . " + texts[12]
    found = finder_of(texts, 3, 2).find(column([document]))
    assert [hit.record for _, hit in found.hits] == [12, *range(MOST_LISTED - 1)]
    assert {hit.texts for _, hit in found.hits} == {MOST_LISTED + 5}
    assert len(found.spans) == MOST_LISTED + 5 + 4  # and "alpha beta 12" once more


def test_words_that_meet_by_their_hash_alone_are_no_hit():
    finder = finder_of(["alpha beta gamma"], 3, 3)
    index = finder.index
    other = index_targets(targets_of(["delta eps zeta"]), ngram=3, least=3, share=0.0)
    # As if the two had the same hashes.
    forged = Finder(
        type(index)(**{**vars(index), "prefix_G": other.prefix_G, "hash_G": other.hash_G})
    )
    assert len(finder.find(column(["Alpha, BETA gamma"])).spans) == 1
    assert len(forged.find(column(["delta eps zeta"])).spans) == 0


@pytest.mark.parametrize("size", [3, 1 << 18])
def test_documents_are_found_wherever_slices_end(size):
    documents = [f"{'w' * size} {number}" for number in range(5)]
    documents[3] += " alpha beta gamma"
    found = finder_of(["alpha beta gamma"], 13, 3).find(column(documents))
    begin = len(documents[3]) - len("alpha beta gamma")
    assert found.spans.tolist() == [[3, begin, len(documents[3])]]


def test_a_document_that_touches_all_texts_writes_no_place_past_them():
    """Plain Python, for compiled code checks no index. One text of two n-grams, both found."""
    hits = np.array([[0, 0, 0], [0, 5, 1]])
    counted, listed = judge_hits.__wrapped__(
        hits,
        np.array([[0, 0], [0, 1]]),
        np.array([0, 1, 2]),
        np.array([0, 0]),
        np.array([3, 4]),
        np.array([2]),
        np.array([2]),
    )
    assert counted.tolist() == [True, True]
    assert listed.tolist() == [[0, 0, 2, 5, 9, 1]]


HIT = Hit("0f", "dev.json", "question", 3, "web/b.txt", 1, 2, 1, "so it „is“")


def test_a_line_a_document_and_text():
    copies = [HIT, replace(HIT, path="web/a.txt"), replace(HIT, document="0a", record=0)]
    [name] = hits_file(copies)
    assert name == "rejects/contamination.jsonl"
    lines = [json.loads(line) for line in hits_file(copies)[name].decode().splitlines()]
    assert [(line["document"], line["record"], line["path"]) for line in lines] == [
        ("0a", 0, "web/b.txt"),
        ("0f", 3, "web/a.txt"),
    ]
    assert lines[1]["overlap"] == HIT.overlap
    assert hits_file([]) == {}


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 2), st.sampled_from("ab")), max_size=30),
    st.integers(0, 30),
)
def test_the_same_lines_are_left_whoever_adds_what(drawn, cut):
    found = [replace(HIT, document=f"{d}", record=r, path=p) for d, r, p in drawn]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matches, "_MOST", 5)
        due = add_hits(found)
        assert add_hits([*add_hits(found[cut:]), *add_hits(found[:cut])]) == due
        assert len(due) == min(5, len({(d, r) for d, r, _ in drawn}))


# ---- what is cut out ----

ENDS = {"line": r"\n", "paragraph": r"\n[ \t\r\v\f]*\n"}
TO_CUT = st.text(st.sampled_from("ab\n\n \té"), min_size=1, max_size=30)
PLACES = st.lists(st.tuples(st.integers(0, 59), st.integers(1, 9)), max_size=3)


def plain_cut(text, spans, unit):
    """Unit by unit, of one document."""
    units, begin = [], 0
    for end in re.finditer(ENDS[unit].encode(), text):
        units.append((begin, text[begin : end.start()], end[0]))
        begin = end.end()
    if begin < len(text):
        units.append((begin, text[begin:], b""))
    touched = [
        any(first < at + len(body + end) and at < stop for first, stop in spans)
        for at, body, end in units
    ]
    kept = [(body, end) for (_, body, end), gone in zip(units, touched, strict=True) if not gone]
    left = b"".join(body + end for body, end in kept)
    if kept and touched[-1]:
        left = left.removesuffix(kept[-1][1])
    return left.decode() if left.decode().strip() else ""


@given(st.lists(st.tuples(TO_CUT, PLACES), min_size=1, max_size=4), st.sampled_from(sorted(ENDS)))
@example([("a\n\nb c\n\nd", [(3, 3)]), ("a\n\nb", [(3, 1)])], "paragraph")
@example([("a\nb\n \nc\n", [(0, 1)]), ("a\n\nb\n\nc", [(0, 4)])], "paragraph")
@example([("a\nb\nc", [(2, 1)]), ("a\n\n", [(0, 1)])], "line")
def test_what_is_left_is_what_no_span_touches(documents, unit):
    texts, spans = [text for text, _ in documents], []
    for number, (text, places) in enumerate(documents):
        length = len(text.encode())
        for first, size in sorted((first % length, size) for first, size in places):
            spans.append((number, first, min(first + size, length)))
    due = [
        plain_cut(text.encode(), [span[1:] for span in spans if span[0] == number], unit)
        if any(span[0] == number for span in spans)
        else text
        for number, text in enumerate(texts)
    ]
    found = cut_out(column(texts), np.array(spans, np.int64).reshape(-1, 3), unit)
    assert found.to_pylist() == due
