"""The plan of build_corpus beside what a run counts."""

import gzip
import json
import random
import re

import pytest

from tests.tools.corpus_factory import build, write_lines
from tests.tools.model_files import model_bytes
from textmill.pipelines.build_corpus import BUILDER, main
from textmill.pipelines.corpus.plan import plan_corpus
from textmill.pipelines.corpus.prepare import CorpusRun
from textmill.pipelines.corpus.summary import plan_facts
from textmill.pipelines.readers.sources import plan_blocks
from textmill.pipelines.runners.sample import count_text_bytes

CLUSTER = ["--runner=FlinkRunner"]


def planned(source, *flags, beam=(), times=1.0):
    """The plan and its options."""
    argv = [f"--input={source}", "--output=/no/such/place", *flags]
    options = BUILDER.parse(argv)[0]
    blocks = plan_blocks(options.source)
    return plan_corpus(CorpusRun.of(options, blocks, [*beam], times=times)), options


@pytest.fixture
def documents(topics):
    """500 documents of paragraphs, some of them twice, some nearly."""
    rng = random.Random(0)
    texts = ["\n\n".join(rng.choices(topics, k=rng.randint(1, 5))) for _ in range(450)]
    return [*texts, *texts[:30], *(f"{text} once more" for text in texts[30:50])]


@pytest.fixture
def source(documents, tmp_path):
    return write_lines(tmp_path / "source.jsonl", documents)


def test_what_is_read_whole_is_exact(source, tmp_path):
    flags = ("--near_duplicates=jaccard:0.8", "--min_words=60", "--num_files=1")
    plan, _ = planned(source, *flags)
    stats = build(source, tmp_path / "corpus", *flags).stats
    assert plan.plan.needs.whole
    assert (plan.documents, plan.dropped) == (stats.documents_read, stats.dropped)
    assert stats.dropped.keys() == {"duplicates", "near_duplicates", "min_words"}
    assert plan.kept == stats.total().documents


def test_a_share_of_what_is_read_whole_is_exact(source, tmp_path):
    (tmp_path / "model.bin").write_bytes(model_bytes())
    flags = (f"--quality_model={tmp_path}/model.bin", "--keep_best=0.3", "--num_files=1")
    plan, _ = planned(source, *flags)
    stats = build(source, tmp_path / "corpus", *flags).stats
    assert (plan.dropped, plan.kept) == (stats.dropped, stats.total().documents)
    assert plan.plan.needs.shuffles == 1 + 2 * 3  # documents; counts, and the limit, of each round


def pages(tmp_path, documents):
    """A WARC file whose pages are mostly markup."""
    links = "".join(f'<li><a href="/pages/{n}/index.html">{n}</a></li>' for n in range(200))
    path = tmp_path / "pages.warc.gz"
    with open(path, "wb") as file:
        for number, text in enumerate(documents):
            marks = random.Random(number).randbytes(3000).hex()  # does not compress well
            body = "".join(f"<p>{part}</p>" for part in text.split("\n\n"))
            body = f"<html><script>{marks}</script><ul>{links}</ul><article>{body}</article></html>"
            http = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n{body}".encode()
            head = (
                "WARC/1.0\r\nWARC-Type: response\r\nWARC-Date: 2026-01-01T00:00:00Z\r\n"
                f"WARC-Target-URI: http://example.com/{number}\r\n"
                f"WARC-Record-ID: <urn:uuid:{number:032d}>\r\n"
                f"Content-Type: application/http; msgtype=response\r\nContent-Length: {len(http)}"
            )
            file.write(gzip.compress(f"{head}\r\n\r\n".encode() + http + b"\r\n\r\n"))
    return path


def test_the_text_of_web_pages_is_measured(documents, tmp_path):
    path = pages(tmp_path, documents)
    plan, options = planned(path)
    corpus = build(path, tmp_path / "corpus")
    text = corpus.stats.funnel.text_bytes
    assert text < path.stat().st_size, "less text than compressed bytes"
    blocks = plan_blocks(options.source)
    assert count_text_bytes(options.source, blocks) == pytest.approx(text, rel=0.2)
    assert plan.kept_bytes == pytest.approx(corpus.stats.total().text_bytes, rel=0.15)
    assert plan.documents == pytest.approx(corpus.stats.documents_read, rel=0.15)
    large, _ = planned(path, times=1e12 / path.stat().st_size)
    assert large.schema.files == pytest.approx(text / path.stat().st_size * 1e12 / 2**26, rel=0.2)


def test_compressed_text_is_measured_and_plain_text_is_not(source, documents, tmp_path):
    content = source.read_bytes()
    packed = tmp_path / "packed.jsonl.gz"
    packed.write_bytes(gzip.compress(content))
    _, options = planned(source)
    assert count_text_bytes(options.source, plan_blocks(options.source)) == len(content)
    _, options = planned(packed)
    found = count_text_bytes(options.source, plan_blocks(options.source))
    assert found == pytest.approx(sum(len(text.encode()) for text in documents), rel=0.02)
    packed.write_bytes(gzip.compress(content)[:-2000])  # the run itself reports it
    assert found > 0
    assert count_text_bytes(options.source, plan_blocks(options.source)) > 0


def test_the_work_of_every_step_is_measured(source, tmp_path):
    target = write_lines(tmp_path / "target.jsonl", ["How many roads must a man walk down " * 3])
    flags = ["--near_duplicates=jaccard:0.8", "--duplicate_paragraphs=line:5"]
    plan, options = planned(source, *flags, f"--decontaminate={target}")
    assert plan.plan.needs.cpu_seconds.keys() == {
        *("reading", "rules", "decontamination", "partitions", "near-duplicates"),
        *("repeated paragraphs", "writing"),
    }
    assert plan.plan.needs.shuffles == 1 + 6 + 3 + 1  # documents, pairs, paragraphs, n-grams
    facts = plan_facts(plan)
    for title in ("disk", "memory", "time", "work", "shuffles", "files", "near-duplicates"):
        assert title in facts
    assert "near-duplicates " in facts["work"] and "decontamination " in facts["work"]


def test_a_plan_for_a_cluster(source):
    flags = ["--near_duplicates=jaccard:0.8"]
    plan, options = planned(source, *flags, beam=CLUSTER, times=1e6)
    facts = plan_facts(plan)
    assert facts.keys().isdisjoint({"memory", "time"})
    measured = r" CPU hours: .* workers of one core, .*; measured on this machine \("
    assert re.search(measured, facts["on a cluster"])
    assert "free" not in str(facts) and "available" not in str(facts)
    assert facts["disk"].endswith("of documents in /no/such/place")
    assert plan.plan.needs.shuffles == 1 + 6 + 3  # with the rounds of many partitions


def test_a_rule_that_drops_nearly_all_is_named(source, tmp_path, capsys):
    main([f"--input={source}", f"--output={tmp_path / 'out'}", "--min_words=100000", "--dry_run"])
    out = capsys.readouterr().out
    assert "warning: min_words drops 100% of the documents of the sample: check" in out
    assert not (tmp_path / "out").exists()


def test_lines_without_the_field_are_named(tmp_path, capsys):
    path = tmp_path / "other.jsonl"
    path.write_text("".join(json.dumps({"body": f"text {n}", "text": ""}) + "\n" for n in range(9)))
    main([f"--input={path}", f"--output={tmp_path / 'out'}", "--dry_run"])
    assert "warning: empty drops 100% of the documents" in capsys.readouterr().out
