"""The suite of benchmarks: its bookkeeping, never its clocks."""

import gzip
import json
import re
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tests.benchmarks import compare_quality_model, corpora, run_all
from tests.benchmarks.bench_merge_loop import plain_merges
from tests.benchmarks.clock import Seconds
from tests.benchmarks.compare_html import (
    Scores,
    load_kinds,
    score_articles,
    score_kinds,
    score_sentences,
    score_words,
    sequences,
)
from tests.benchmarks.linked_sets import link_copies
from tests.benchmarks.measure import (
    CannotRun,
    Record,
    Runs,
    Side,
    alternated,
    figure,
    needs,
    run_command,
)
from tests.benchmarks.page_scripts import SCRIPTS, write_in, write_text
from tests.benchmarks.report import margin, markdown, write_report
from tests.benchmarks.scripts.lean_tokenizers import SEPARATOR
from tests.tools.shard_factory import write_mlm_set
from tests.tools.tokenizer_factory import trained_tokenizer
from textmill.pipelines.readers.page_scan import scan
from textmill.schemas.errors import UsageError
from textmill.schemas.files.finished import read_dataset
from textmill.trainers.reader import ShardSet

BENCHMARKS = Path(run_all.__file__).parent

# 110 MB in 2, 5 and 4 s; 22 MB in 11 s each time.
OURS = Side.rate("ours", Runs([Seconds(2, 4), Seconds(5, 4), Seconds(4, 8)]), 110, "MB")
SCRIPT = Side.rate("script", Runs([Seconds(11, 22)] * 3), 22, "MB", workers="2 processes")
FASTER = Record("mlm", OURS, SCRIPT, reach=20, aim=35, versions={"numpy": "2.4"}, command="c -x")
PARTS = Record(
    "parts",
    Side.time("ours", Runs([Seconds(6, 6)])),
    Side.time("parts", Runs([Seconds(4, 2)])),
    reach=2.5,
    aim=1.5,
    at_most=True,
)
FOUND = Record("found, s", Side.time("again", Runs([Seconds(4, 1)])), reach=3, at_most=True)
ABSENT = Record("peer", OURS, Side("datatrove", "MB/s", (), note="no | uv"), reach=14)


def test_every_bench_is_in_the_suite():
    listed = [bench.name for bench in run_all.SUITE]
    assert sorted(listed) == sorted(path.stem for path in BENCHMARKS.glob("bench_*.py"))


def test_the_suite_takes_less_than_40_minutes():
    assert sum(bench.seconds for bench in run_all.SUITE) < 40 * 60


def test_contestants_take_turns_and_every_other_round_goes_backwards():
    log = []
    names = ("a", "b", "c")
    found = alternated({n: lambda n=n: log.append(n) or len(log) for n in names}, 3)
    assert "".join(log) == "abccbaabc"
    assert found == {"a": [1, 6, 7], "b": [2, 5, 8], "c": [3, 4, 9]}


def test_who_cannot_run_stops_nobody():
    calls: Counter[str] = Counter()

    def fails() -> float:
        calls["fails"] += 1
        raise CannotRun("no such package")

    found = alternated({"works": lambda: 1.0, "fails": fails}, 3)
    assert found["works"] == [1.0] * 3 and not found["works"].reason
    assert found["fails"] == [] and found["fails"].reason == "no such package"
    assert calls["fails"] == 1
    side = Side.rate("x", found["fails"], 1, "MB")  # type: ignore[arg-type]
    assert side.runs == () and side.note == "no such package"


def test_medians_and_ratios_by_hand():
    assert OURS.runs == (55, 22, 27.5) and OURS.by_cpu == (27.5, 27.5, 13.75)
    assert OURS.median == 27.5 and OURS.unit == "MB/s"
    assert FASTER.ratio == 27.5 / 2 and FASTER.ratio_by_cpu == 27.5
    assert PARTS.ratio == 1.5 and PARTS.ratio_by_cpu == 3
    slower = Record("s", PARTS.ours, PARTS.beside)  # seconds: fewer are better
    assert slower.ratio == pytest.approx(4 / 6)
    assert FOUND.ratio == 4


def test_thresholds_are_met_from_the_right_side():
    assert FASTER.meets(13.75) and not FASTER.meets(14) and FASTER.meets(None) is None
    assert PARTS.meets(PARTS.reach) and PARTS.meets(PARTS.aim) and not PARTS.meets(1.4)
    assert ABSENT.meets(14) is None and ABSENT.reason == "datatrove: no | uv"
    assert margin(FASTER, FASTER.ratio) == 13.75 / 20
    assert margin(PARTS, PARTS.ratio) == 2.5 / 1.5
    assert margin(FOUND, FOUND.ratio) == 3 / 4


def test_told_in_a_line():
    assert FASTER.told() == (
        "mlm: ours 27.5 MB/s beside script 2 MB/s: 13.8 times (27.5 by processor time) "
        "[reach 20, aim 35]"
    )
    assert FOUND.told() == "found, s: again 4 s [reach 3]"
    assert ABSENT.told() == "peer: not measured (datatrove: no | uv)"
    assert [figure(v) for v in (1234.5, 99.96, 12.34, 0.01234)] == [
        "1,234",
        "100",
        "12.3",
        "0.0123",
    ]


def test_the_table_word_by_word():
    lines = markdown([FASTER, PARTS, FOUND, ABSENT], {"cores": 2}).split("\n")
    assert lines[2].startswith("cores 2. ")
    assert lines[4:10] == [
        "| what | ours | beside | ratio | by processor time | reach | aim | |",
        "|---|---|---|---|---|---|---|---|",
        "| mlm | 27.5 MB/s | 2 MB/s | 13.8 | 27.5 | 20 | 35 | **missed** |",
        "| parts | 6 s | 4 s | 1.5 | 3 | at most 2.5 | at most 1.5 | aim met |",
        "| found, s | 4 s |  |  |  | at most 3 |  | **missed** |",
        "| peer | not measured: datatrove: no \\| uv | | | | | | |",
    ]
    start = lines.index("## mlm")
    assert lines[start + 2 : start + 7] == [
        "`c -x`",
        "",
        "- ours: 55, 22, 27.5 MB/s (by processor time 27.5, 27.5, 13.8); 1 process",
        "- script: 2, 2, 2 MB/s (by processor time 1, 1, 1); 2 processes",
        "- numpy 2.4",
    ]


def test_records_survive_json_and_the_report_is_whole(tmp_path):
    records = [FASTER, PARTS, FOUND, ABSENT]
    write_report(records, tmp_path)
    content = json.loads((tmp_path / "benchmarks.json").read_text())
    first, *_, last = content["records"]
    assert (first["ratio"], first["reached"], first["aim_met"]) == (13.75, False, False)
    assert last["reason"] and "ratio" not in last
    assert content["machine"]["cores"] >= 1
    assert (tmp_path / "benchmarks.png").read_bytes().startswith(b"\x89PNG")
    (tmp_path / "records.json").write_text(json.dumps([record.to_dict() for record in records]))
    assert run_all.read_records(tmp_path / "records.json") == records


def test_a_bench_that_fails_is_a_row_with_its_reason(monkeypatch, tmp_path):
    monkeypatch.setattr(run_all, "LONGEST", 60)
    (record,) = run_all.run("bench_that_is_not_there", [])
    assert "No module named" in record.reason and record.name == "bench_that_is_not_there"


def test_a_command_that_fails_says_what_it_said():
    with pytest.raises(CannotRun, match="ended with 3: out of luck"):
        run_command(["sh", "-c", "echo out of luck >&2; exit 3"])
    with pytest.raises(CannotRun, match="there is no nowhere"):
        run_command(["nowhere"])
    with pytest.raises(CannotRun, match="there is no"):
        needs(BENCHMARKS / "nothing")
    seconds, said = run_command(["sh", "-c", "echo hello"])
    assert said == "hello\n" and seconds.wall > 0


def test_no_document_of_a_text_is_there_twice(monkeypatch, tmp_path):
    (tmp_path / "a").mkdir()
    written = {"b.py": "x = 1\n" * 50, "a/c.md": "x = 1\n" * 50, "a/d.rst": "æ " * 150}
    written |= {"a/small.py": "x", "a/e.so": "y " * 150}
    for name, text in written.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "a" / "other.py").write_bytes(b"\xff" * 300)
    (tmp_path / "a" / "link.py").symlink_to(tmp_path / "a" / "d.rst")
    monkeypatch.setattr(corpora, "SOURCES", (str(tmp_path),))
    lines = b"".join(json.dumps({"text": text}).encode() + b"\n" for text in ("a  b", "c", "c"))
    monkeypatch.setattr(corpora, "unpacked", lambda _: lines)
    path = tmp_path / "texts.jsonl"
    sources, reviews = corpora.source_texts(), corpora.review_texts()
    assert corpora.write_json_lines(path, 1, sources) == 301 + 451
    found = [json.loads(line)["text"] for line in path.read_text("utf-8").splitlines()]
    assert found == [written["b.py"], written["a/d.rst"]]
    assert corpora.write_json_lines(path, 1, reviews) == 5 + 2
    assert corpora.write_json_lines(path, 4e-6, corpora.review_texts()) == 5  # as much as is wanted
    # A line each; all follow once more, with the number of the turn.
    size = corpora.write_corpus(tmp_path / "corpus.txt", 770e-6)
    both = ["a b", "c", " ".join(["x = 1"] * 50), " ".join(["æ"] * 150)]
    lines = [*both, "1 a b", "1 c"]
    text = (tmp_path / "corpus.txt").read_text("utf-8")
    assert text.splitlines()[:6] == lines and size == len(text.encode())


def test_each_document_is_in_one_share_of_the_lean_script(tmp_path):
    trained_tokenizer().save(str(tmp_path / "tokenizer.json"))
    texts = ["a" * (number % 7) for number in range(100)]
    documents = tmp_path / "documents.jsonl"
    documents.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    given = (documents, tmp_path / "tokenizer.json", tmp_path / "i", "3")
    run_command([sys.executable, "-m", "tests.benchmarks.scripts.lean_tokenizers", *given])
    ids = np.concatenate([np.fromfile(tmp_path / f"i.{n}", np.uint32) for n in range(3)])
    ends = np.flatnonzero(ids == SEPARATOR)
    assert np.diff(ends, prepend=-1).tolist() == [1 + len(text) for text in texts]


def test_a_side_with_memory_shows_it_and_its_processor_time():
    side = Side.time("ours", Runs([Seconds(6, 7), Seconds(5, 9), Seconds(4, 8)]), memory=812.4)
    assert side.shown == "5 s (8 CPU s, 812 MB)"
    assert OURS.shown == "27.5 MB/s"


def test_plain_python_merges_by_hand():
    """Sennrich's words; ties go to the smallest ids, which bytes have in their order."""
    words, counts = [b"low", b"lower", b"newest", b"widest"], np.array([5, 2, 6, 3])
    merges = [
        *[("e", "s"), ("es", "t")],  # 9 times
        *[("l", "o"), ("lo", "w")],  # 7
        *[("e", "w"), ("n", "ew"), ("new", "est")],  # 6
        *[("d", "est"), ("i", "dest"), ("w", "idest")],  # 3
        *[("e", "r"), ("low", "er")],  # 2
    ]
    assert plain_merges(words, counts, 1000) == merges
    assert plain_merges(words, counts, 256 + 5) == merges[:5]
    assert plain_merges([b"aaaa", b"b"], np.array([2, 9]), 1000) == [("a", "a"), ("aa", "aa")]


def test_a_set_of_links_reads_as_its_one_shard_many_times(tmp_path):
    changes = {"shards": {"train": 1, "validation": 1}, "file_formats": ("array_record",)}
    written = write_mlm_set(tmp_path / "one", train=40, validation=10, **changes)
    assert link_copies(tmp_path / "one", tmp_path / "many", 100) == 120
    shards = ShardSet(str(tmp_path / "many"))  # every sha256 is checked
    assert shards.rows("train") == 120 and shards.rows("validation") == 10
    rows = shards.read("train", np.array([3, 43, 119]))
    assert np.array_equal(rows["input_ids"], written["train"]["input_ids"][[3, 3, 39]])
    assert read_dataset(str(tmp_path / "one")).schema.shards["train"] == 1  # as it was


def test_scores_of_extracted_text_are_those_by_hand():
    assert sequences("a b, c d e") == {("a", "b", "c", "d"): 1, ("b", "c", "d", "e"): 1}
    assert sequences("a b") == {("a", "b"): 1} and not sequences(" - ")
    # Pages: two of three sequences are right and two of two found; nothing found; nothing due.
    found, due = ["a b c d e f", "", "x y z w"], ["a b c d e", "p q r s", ""]
    scores = score_articles(found, due)
    assert (scores.precision, scores.recall) == (1 / 3, 1 / 2)
    assert scores.f1 == pytest.approx(0.4)
    sentences = score_sentences(["a b. c d."], [(["a b", "x"], ["c d", "y"])])
    assert sentences == Scores(precision=0.5, recall=0.5, f1=0.5)


def test_scores_of_words_are_those_by_hand():
    assert score_words("One, two two.", "two ONE one six") == (2 / 3, 2 / 4, pytest.approx(4 / 7))
    assert score_words(" - ", "") == (1, 1, 1)
    assert score_words("a", "") == score_words("", "a") == score_words("a", "b") == (0, 0, 0)
    due = [("forum", "a b"), ("article", "c"), ("forum", "")]
    scores = score_kinds(["b", "c d", ""], due)
    found = (scores.precision, scores.recall, scores.f1)
    assert found == pytest.approx(((1 + 1 / 2 + 1) / 3, (1 / 2 + 1 + 1) / 3, (4 / 3 + 1) / 3))
    assert scores.kinds == pytest.approx({"article": 2 / 3, "forum": 5 / 6})


def test_every_second_review_has_its_words_shuffled(monkeypatch):
    texts = [" ".join(f"{n}.{word}" for word in range(30)) for n in range(8)]
    monkeypatch.setattr(
        compare_quality_model, "reviews", lambda _: [{"text": text} for text in texts]
    )
    found = compare_quality_model.norec(8)
    assert (len(found.train), len(found.test)) == (6, 2)
    pairs = zip(found.train + found.test, found.good + found.test_good, texts, strict=True)
    for number, (text, good, before) in enumerate(pairs):
        assert good == (number % 2 == 0) == (text == before)
        assert sorted(text.split()) == sorted(before.split())


def test_only_the_development_part_of_pages_is_read(tmp_path):
    for part, kind in (("dev", "category"), ("test", "forum")):
        for name in ("html", "ground-truth"):
            (tmp_path / part / name).mkdir(parents=True)
        (tmp_path / part / "html" / "1.html.gz").write_bytes(gzip.compress(b"<p>x"))
        entry = {
            "_internal": {"page_type": {"primary": kind}},
            "ground_truth": {"title": "a page of pictures"},
        }
        (tmp_path / part / "ground-truth" / "1.json").write_text(json.dumps(entry))
    found = ([b"<p>x"], [("collection", "")])
    assert load_kinds(tmp_path) == load_kinds(tmp_path / "dev") == found
    with pytest.raises(UsageError, match="it has no folder dev/"):
        load_kinds(tmp_path / "test")


@pytest.mark.parametrize("name", SCRIPTS)
def test_pages_in_other_scripts_keep_their_blocks(name):
    script = SCRIPTS[name]
    page = (
        b"<html><body><p>The library opens, &amp; closes at 9.</p><p>The <b>door</b> is open.</p>"
        b"<pre>The library()</pre></body></html>"
    )
    elements, runs, count = scan(np.frombuffer(page, np.uint8))
    written = write_in(page, elements, runs, script)
    same, other, others = scan(np.frombuffer(written, np.uint8))
    assert (same.tags.tolist(), others) == (elements.tags.tolist(), count)
    assert other.blocks.tolist() == runs.blocks.tolist()
    first, second = (written.split(b"<p>")[n].decode() for n in (1, 2))
    word = write_text("The", script, {})
    assert first.startswith(word) and second.startswith(word)
    assert "&amp;" in first and b"<pre>The library()</pre>" in written
    assert not re.search("[a-z]", re.sub("&amp;|</?[a-z]+>", "", first)) or name == "German"


def test_texts_in_other_scripts():
    words = {"A": "你", "cat": "叹呐", "sat": "乒", "ran": "丹", "why": "丏"}
    text = "A cat sat, a &lt; cat ran 3.14.  Why?"
    written = write_text(text, SCRIPTS["Chinese"], words | {"a": "你", "Why": "丏"})
    assert written == "你叹呐乒，你 &lt; 叹呐丹 3.14.  丏？"
    arabic = write_text("cat, sat? ran.", SCRIPTS["Arabic"], {"cat": "ذ", "sat": "ج", "ran": "ت"})
    assert arabic == "ذ، ج؟ ت."
