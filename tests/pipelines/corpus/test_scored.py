"""quality.json and the report: scores by tenths, language and host, whatever the order."""

import json
import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pipelines.corpus.test_corpus_check import seal
from tests.tools.corpus_factory import build, rows_of, write_lines
from tests.tools.filter_factory import column
from tests.tools.model_files import model_bytes
from tests.tools.near_duplicates import digest_of
from textmill.pipelines.corpus.corpus_check import check_corpus
from textmill.pipelines.corpus.corpus_search import search_corpus
from textmill.pipelines.corpus.filter_documents import apply_rules
from textmill.pipelines.corpus.rules import language, quality_model
from textmill.pipelines.corpus.rules.rule import Rule
from textmill.pipelines.corpus.scored import (
    Scored,
    ScoredDocument,
    ScoreSum,
    score_documents,
)
from textmill.pipelines.readers.page_hosts import MOST_HOSTS
from textmill.schemas.format.digests import Digests
from textmill.schemas.typed_json import to_json

ONE = st.tuples(
    st.text("abc", min_size=1, max_size=2),
    st.floats(0, 1, width=32),
    st.sampled_from(["https://a.org/x", "https://b.org/", "", "http://["]),
)


def scored_of(documents):
    texts, scores, urls = zip(*documents, strict=True) if documents else ((), (), ())
    return score_documents(np.array(scores, np.float32), column(texts), {"url": urls})


@given(st.lists(ONE, max_size=30), st.integers(0, 30), st.randoms(use_true_random=False))
def test_parts_add_up_in_any_order_and_cut(documents, cut, draw):
    whole = scored_of(documents)
    shuffled = draw.sample(documents, len(documents))
    parts = [scored_of(shuffled[:cut]), Scored(), scored_of(shuffled[cut:])]
    assert to_json(Scored.sum(parts)) == to_json(Scored.sum([whole]))
    assert sum(one.documents for one in whole.hosts.values()) == len(documents)


def test_samples_and_means_by_hand():
    documents = [("x", 0.25, "https://A.org/1"), ("y", 0.75, "https://a.org/2"), ("z", 1.0, "")]
    scored = scored_of([*documents, documents[0]])
    assert scored.samples == {
        "0.2 to 0.3": (ScoredDocument(digest_of("x").hex(), 0.25, "x"),),
        "0.7 to 0.8": (ScoredDocument(digest_of("y").hex(), 0.75, "y"),),
        "0.9 to 1.0": (ScoredDocument(digest_of("z").hex(), 1.0, "z"),),
    }
    assert scored.hosts == {"a.org": ScoreSum(3, 1_250_000), "unknown": ScoreSum(1, 1_000_000)}
    assert scored.hosts["a.org"].mean == pytest.approx(1.25 / 3)
    counts = {"quality": {"0.2 to 0.3": 2, "0.7 to 0.8": 1, "0.9 to 1.0": 1}}
    assert [*scored.broken_equations(counts)] == []
    counts["quality"]["0.2 to 0.3"] = 3
    assert [*scored.broken_equations(counts)] == ["hosts have 4 documents, but 5 have a score"]
    [sentence, _] = scored.broken_equations({"quality": {"0.2 to 0.3": 3}})
    assert sentence.startswith("samples of ['0.2 to 0.3', '0.7 to 0.8', '0.9 to 1.0'], but scores")


def test_of_many_hosts_the_same_are_counted():
    documents = [(str(n), 0.5, f"https://{n}.org") for n in range(MOST_HOSTS + 500)] * 2
    whole = scored_of(documents)
    parts = Scored.sum(scored_of(documents[n::7]) for n in range(7))
    assert len(whole.hosts) == MOST_HOSTS and parts.hosts == whole.hosts
    assert {*whole.hosts.values()} == {ScoreSum(2, 1_000_000)}
    assert [*whole.broken_equations({"quality": {"0.5 to 0.6": len(documents)}})] == []


def test_languages_are_those_that_a_rule_found():
    texts = ["a", "b", "c", "d"]
    identified = ["en", "nb", "en", "da"], np.ones(4)
    scores = dict(zip(texts, np.array([0.25, 0.5, 0.75, 1.0], np.float32), strict=True))
    rules = (
        Rule(("other", "unsure"), lambda _: language.judge(identified, {"en": 0.0, "nb": 0.0})),
        Rule(
            ("low",),
            lambda text: quality_model.judge(
                np.array([scores[one] for one in text.to_pylist()]), np.float32(0.5)
            ),
        ),
    )
    # The rule is right, not the field.
    columns = pa.record_batch({"text": column(texts), "language": column(["xx"] * 4)})
    applied = apply_rules(columns, rules)
    assert applied.reasons == {0: "low", 3: "other"}
    assert applied.scored.languages == {"en": ScoreSum(2, 1_000_000), "nb": ScoreSum(1, 500_000)}


def test_the_report_and_quality_json_of_a_corpus(tmp_path):
    draw = random.Random(0)
    texts = [" ".join(draw.choices("the a film er good bad x".split(), k=6)) for _ in range(300)]
    lines = [
        {"text": text, "url": f"https://{n % 3}.example/{n}", "lang": ["en", "nb"][n % 2]}
        for n, text in enumerate(texts)
    ]
    (tmp_path / "model.bin").write_bytes(model_bytes(3, labels=3))
    flags = [f"--quality_model={tmp_path}/model.bin", "--keep_fields=url,lang"]
    source = write_lines(tmp_path / "in.jsonl", lines)
    every = build(source, tmp_path / "every", *flags)
    found = json.loads(Path(every.directory, "quality.json").read_text())
    rows = {row["text"]: row["quality"] for row in rows_of(every)}
    for name, key in (("hosts", lambda line: line["url"][8:17]), ("languages", "lang")):
        due = {}
        for line in lines:
            label = line[key] if isinstance(key, str) else key(line)
            due.setdefault(label, []).append(round(float(np.float32(rows[line["text"]])) * 1e6))
        assert found[name] == {
            label: {"documents": len(own), "millionths": sum(own)} for label, own in due.items()
        }
    page = Path(every.directory, "report.html").read_text()
    assert "Quality by the model" in page and "Mean score by host" in page
    for tenth, samples in found["samples"].items():
        least = float(tenth[:3])
        due = sorted(
            digest_of(text).hex() for text in rows if int(rows[text] * 10) == round(least * 10)
        )
        assert [sample["document"] for sample in samples] == due[:5]
        for sample in samples:
            assert sample["excerpt"] in page
            assert sample["score"] == pytest.approx(rows[sample["excerpt"]], abs=1e-7)
    # Documents that are dropped later are counted, too.
    best = build(source, tmp_path / "best", *flags, "--keep_best=0.1", "--num_files=3")
    assert json.loads(Path(best.directory, "quality.json").read_text()) == found
    assert check_corpus(every.directory).problems == []
    sample = found["samples"][max(found["samples"])][0]
    listed = Digests(bytes.fromhex(sample["document"]))
    assert search_corpus(every.directory, listed).problems[1:] == [
        f"quality.json: document {sample['document']} in a sample of scores from "
        f"{max(found['samples'])}"
    ]
    found["languages"]["en"]["documents"] += 1
    sample["excerpt"] += "x"
    Path(every.directory, "quality.json").write_text(json.dumps(found))
    seal(Path(every.directory))
    assert check_corpus(every.directory).problems == [
        "quality.json: languages have 301 documents, but 300 have a score",
        f"quality.json: the document of a sample of {max(found['samples'])} is not the hash of its "
        "excerpt",
    ]
