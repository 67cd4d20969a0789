"""report.html: the same bytes any way a dataset is made, right for odd datasets, harmless."""

import io
import json
import logging
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.tools.shard_factory import mlm_schema, tokenizer_json, write_mlm_set
from tests.tools.tokenizer_factory import trained_tokenizer
from textmill.pipelines.build_shards import BUILDER, main
from textmill.pipelines.corpus.rule_figures import by_number, observed, removals
from textmill.pipelines.corpus.summary import funnel_table
from textmill.pipelines.encoding.tokenizer import LoadedTokenizer
from textmill.pipelines.inspection.read_rows import sample_rows
from textmill.pipelines.inspection.report import sections as set_sections
from textmill.pipelines.inspection.report.content import SetContent
from textmill.pipelines.inspection.report.flow_and_zipf import flow, zipf
from textmill.pipelines.inspection.report.numbers import compact, percent
from textmill.pipelines.inspection.report.page import render_part, report_file
from textmill.pipelines.inspection.report.parts import CodeLines, ColumnChart, Shown
from textmill.pipelines.inspection.report.sections import describe_making, report_html
from textmill.pipelines.readers.documents import Reject
from textmill.pipelines.runners import console
from textmill.pipelines.shards.schema import schema_of
from textmill.pipelines.writers.rejects import Rejects
from textmill.pipelines.writers.token_counts import read_token_counts
from textmill.schemas.files.finished import read_dataset
from textmill.schemas.format.drops import SIZES, DroppedDocument, Funnel, Removed
from textmill.schemas.format.manifest import ManifestFile
from textmill.schemas.format.metadata import InputFile, Inputs
from textmill.schemas.format.statistics import ShardStatistics, Statistics, by_length

HOSTILE = [
    "<script>document.title = 'broken'</script> & <img src=x onerror=alert(1)>",
    "Привет, мир! 中文字符 and 漢字かな交じり文, हिन्दी में, 한국어 🙂🙂",
    "مرحبا بالعالم، هذا نص عربي طويل إلى حد ما",
    "a\x00b\x1b[31mred\x07 \u202etfel ot thgir\u202c \ufeff end",
    "https://example.org/" + "no-place-to-break-" * 40,
    "]]> --> </style></body></html> {{ 7 * 7 }} {% raw %}",
]
WORDS = "The quick brown fox who is 12 years old does not jump over lazy dogs".split()


def _corpus() -> list[str]:
    random = np.random.default_rng(0)
    lengths = random.integers(3, 60, 200).tolist()
    return HOSTILE * 2 + [" ".join(random.choice(WORDS, length)) for length in lengths]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """The corpus, with two broken lines, in one file and in three; and a tokenizer."""
    folder = tmp_path_factory.mktemp("report")
    lines = [json.dumps({"text": text}) for text in _corpus()] + ['{"text": 5}', "<b>broken"]
    (folder / "<b>corpus & co.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "tokenizer.json").write_text(trained_tokenizer().to_str())
    return folder


def _build(folder: Path, name: str, *flags: str) -> Path:
    places = [f"--input={folder}/*.jsonl", f"--output={folder / name}"]
    flags = ("--splits=train:0.8,validation:0.2", "--num_shards=3", "--max_length=64", *flags)
    main([*places, f"--tokenizer={folder}/tokenizer.json", *flags])
    return folder / name


@pytest.fixture(scope="module")
def made(folder) -> Path:
    return _build(folder, "made")


def _html(parts: Sequence[Shown]) -> str:
    return "</style>" + "".join(map(render_part, parts))


def _text(page: bytes) -> str:
    """The page without its tags; one space for any number."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page.decode().split("</style>")[1]))


def test_it_is_the_same_however_the_set_is_made(folder, made):
    other = _build(folder, "other", "--shuffle_by=runner", "--direct_runner_bundle_repeat=2")
    for file in ("report.html", "token_counts.npy"):
        assert (other / file).read_bytes() == (made / file).read_bytes()


def test_whole_documents_have_three_examples_a_split(folder):
    made = _build(folder, "documents", "--task=tokens", "--file_format=npy")
    text = _text((made / "report.html").read_bytes())
    assert "train, row 2" in text and "train, row 3" not in text


def test_the_report_states_the_counts_of_the_dataset(made, folder):
    page = (made / "report.html").read_bytes()
    text, info = _text(page), read_dataset(str(made))
    total, stats = info.stats.total(), info.stats
    assert f"{total.documents:,} documents in {total.rows:,} rows of 64 tokens" in text
    assert info.schema.fingerprint in text and f"Textmill {info.schema.code_version}" in text
    assert f"duplicates {total.dropped['duplicates']:,}" in text
    assert "broken JSON a line of JSON Lines that is not JSON 1" in text
    assert "not a string the value has the wrong type 1" in text
    assert "corpus &amp; co.jsonl" in text
    assert f"{stats.documents_read:,}" in text
    for counts in stats.splits().values():
        assert f"{counts.tokens_in_rows:,}" in text
    # The share is of the ordinary tokens that token_counts.npy has.
    counts = read_token_counts(info)
    assert counts is not None and counts.sum() == total.tokens_in_rows
    ordinary = int(np.delete(counts, info.schema.all_special_ids).sum())
    assert f"{ordinary:,} in all rows" in text
    assert f"masked {percent(total.masked / ordinary)}" in text


SHOWN = ("&lt;script&gt;", "&lt;/style&gt;", "{{", "\\x1b", "\\u202e")


def _assert_harmless(page: str, text: str, *more: str) -> None:
    assert [part for part in (*SHOWN, *more) if part not in text] == []
    assert "<script" not in page and "<img" not in page and "<b>corpus" not in page
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u202e\ufeff]", page)


def test_text_of_documents_is_text_and_nothing_else(folder):
    """The first rows of hostile documents only show every one."""
    (folder / "hostile.txt").write_text("\n".join(HOSTILE))
    places = [f"--input={folder}/hostile.txt", "--document=line", f"--output={folder}/hostile"]
    flags = ["--splits=train:1", "--max_length=384", "--no_static_masking"]
    main([*places, f"--tokenizer={folder}/tokenizer.json", *flags])
    page = (folder / "hostile" / "report.html").read_text()
    text = re.sub(r"<[^>]*>", "", page)
    _assert_harmless(page, text, "{%", "\\x00", "\\ufeff", "漢", "م")
    # The only addresses are those in the documents' text.
    assert not re.search(r"(src|href)=\"(?!data:,\")|url\(|@import", page)


def test_the_command_makes_the_same_set(made):
    info = read_dataset(str(made))
    parts = describe_making(_content(made, config=(made / "config.yaml").read_bytes()))
    [command], flags = (part.lines for part in parts if isinstance(part, CodeLines))
    assert {"task: mlm", "splits: train:0.8,validation:0.2"} <= {*flags}
    command = command.replace("DIR/", f"{made}/").replace("NEW_DIR", "elsewhere")
    options, others = BUILDER.parse(shlex.split(command)[3:])
    tokenizer = LoadedTokenizer((made / "tokenizer.json").read_bytes())
    assert others == []
    assert schema_of(options, tokenizer, {}).fingerprint == info.schema.fingerprint


# Sets that are unlike others


def _content(directory: Path, **changes) -> SetContent:
    info = read_dataset(str(directory))
    content = SetContent(
        schema=info.schema,
        statistics=info.stats,
        inputs=info.inputs,
        files=info.manifest.files,
        rejects=Rejects(),
        token_counts=read_token_counts(info),
        samples=sample_rows(info.schema, info.manifest.files, lambda name: str(directory / name)),
        tokenizer=LoadedTokenizer((directory / "tokenizer.json").read_bytes()),
        config=b"max_length: 16\nsplits: train:0.9,validation:0.1\n",
    )
    return replace(content, **changes)


@pytest.fixture(autouse=True)
def _no_section_fails(request, caplog) -> Iterator[None]:
    yield
    if "failing" not in request.node.name:
        assert [r.message for r in caplog.records if r.levelno >= logging.WARNING] == []


def test_sets_of_one_document_and_of_none(tmp_path):
    write_mlm_set(tmp_path / "one", train=1, validation=0, max_length=10)
    text = _text(report_html(_content(tmp_path / "one")))
    assert "in 1 row of 10 tokens" in text and "validation, row" not in text
    write_mlm_set(tmp_path / "set", train=0, validation=0, static_masking=False)
    text = _text(report_html(_content(tmp_path / "set")))
    assert "0 documents in 0 rows of 16 tokens" in text
    assert "Masks" not in text and "Packing" not in text and "Tokens There were none." in text


@pytest.mark.slow
def test_250_000_ids_and_65_536_shards_are_a_small_page(tmp_path):
    schema = mlm_schema(vocab_size=250_000, shards={"train": 65_535, "validation": 1})
    counts = (1_000_000 // np.arange(1, 250_001)).astype(np.int64)
    shard = ShardStatistics(
        documents=2,
        tokens=20,
        specials_added=4,
        rows=2,
        tokens_in_rows=24,
        segments=2,
        masked=3,
        **by_length(np.array([9, 11])),
    )
    names = [*schema.shard_names("train"), *schema.shard_names("validation")]
    stats = Statistics(
        documents_read=2 * len(names) + 90,
        dropped={f"reason_{number}": number for number in range(13)},
        shards=dict.fromkeys(names, shard),
    )
    sha256 = "0" * 64
    content = SetContent(
        schema=schema,
        statistics=stats,
        inputs=Inputs(tuple(InputFile(f"{n:06}.txt", 1000, "ab") for n in range(100_000))),
        files=[
            ManifestFile(f"{name}.tfrecord", 100, sha256, name.rsplit("-", 3)[0], 2)
            for name in names
        ],
        rejects=Rejects.of(Reject("a.txt", n, f"reason_{n % 13}", "x" * 5000) for n in range(1000)),
        token_counts=counts,
        samples={},
        tokenizer=LoadedTokenizer(tokenizer_json(250_000)),
        config=b"",
    )
    page = report_html(content)
    text = _text(page)
    assert len(page) < 200_000
    assert "131,072 documents in 131,072 rows" in text
    assert "and 99,980 more" in text
    assert page.count(b"train, shards 0 to 1,023: 2 to 2 rows") == 1
    assert "rank −1.00" in text  # counts are 1,000,000 / rank


def test_classes_by_split(tmp_path):
    write_mlm_set(tmp_path / "set")
    content = _content(tmp_path / "set")
    shards = dict(content.statistics.shards)
    for name, labels in {"train": {"<pos>": 30, "neg": 10}, "validation": {"neg": 5}}.items():
        for shard in shards:
            if shard.startswith(name):
                shards[shard] = replace(shards[shard], labels=labels)
    text = _text(report_html(replace(content, statistics=Statistics(shards=shards))))
    # Two shards of train, one of validation.
    assert "class documents share train validation" in text
    assert "&lt;pos&gt; 60 70.6 % 75.0 % 0 %" in text
    assert "neg 25 29.4 % 25.0 % 100 %" in text


def test_what_a_corpus_lost_rule_by_rule():
    samples = tuple(
        DroppedDocument(f"{n:032x}", text[:300], text[:300])
        for n, text in enumerate(sorted(HOSTILE))
    )
    removed = {
        "filter:<b>": Removed(6, 60, 6, samples),
        "duplicates": Removed(3, 30, 9),
        "min_chars": Removed(1, 10, 3, (DroppedDocument("f" * 32, "short"),)),
    }
    given, kept = (90, 1100, 218), {"documents": 80, "text_bytes": 1000, "words": 200}
    funnel = Funnel(*given, removed=removed)
    page = _html(removals(funnel, kept))
    text = _text(page.encode())
    assert "80 of 90 documents were kept: 200 of 218 words and 1,000 of 1,100 bytes." in text
    rules = "too few characters minimum number of characters: --min_chars −1 −3 "
    rules += "&lt;b&gt; by your function: --filter −6 −6 "
    rules += "exact duplicates the same text as a kept document −3 −9"
    assert f"rule documents documents left words words left {rules}" in text
    assert "too few characters: 1 of 1 document ffffffff short" in text
    widths = [float(found) for found in re.findall(r'flex: ([0-9.]+)" title="removed here', page)]
    due = [(1, 0), (3, 2), (6, 0), (6, 2), (3, 0), (9, 2)]
    assert widths == pytest.approx([count / given[which] for count, which in due], abs=1e-5)
    _assert_harmless(page, text)
    shown = io.StringIO()
    console.Console(file=shown, width=80).print(funnel_table(replace(funnel, edited_bytes=5)))
    assert [line.split() for line in shown.getvalue().splitlines()] == [
        ["reason", "documents", "bytes", "words", "of", "all", "text"],
        ["min", "chars", "1", "10", "3", f"{10 / given[1]:.2%}"],
        ["filter:<b>", "6", "60", "6", f"{60 / given[1]:.2%}"],
        ["duplicates", "3", "30", "9", f"{30 / given[1]:.2%}"],
        ["edits", "5", f"{5 / given[1]:.2%}"],
    ]


def test_what_rules_counted_besides():
    counted = {
        "language": {"<nb>": 30, "en": 10},
        "near_duplicate_clusters": {"16 to 31": 1, "2 to 3": 40, "4 to 7": 5},
        "edited": {"c4": 7},
        "edited_bytes": {"c4": 1234},
        "near_duplicates": {"refuted": 3, "verified": 2},
    }
    text = _text(_html(observed(counted)).encode())
    assert text.split("</style>")[-1].strip() == (
        "Edits documents bytes removed C4&#39;s line rules lines are cut: --quality=c4 7 1,234 "
        "kept and dropped documents, by the rule that edits "
        "Documents by language &lt;nb&gt; 30 75.0 % en 10 25.0 % all that reached the rule "
        "Clusters of near-duplicates 40 2 to 3 5 4 to 7 1 16 to 31 "
        "by number of documents, with the kept one "
        "Near-duplicates pairs below the threshold candidates that are not similar enough 3 "
        "verified pairs candidates whose similarity reaches the threshold 2 "
        "pairs with a common band are candidates"
    )
    few = observed({"near_duplicate_clusters": {"2": 9, "3": 1}})
    assert "columns" not in _html(few), "two ranges are a table"
    assert observed({}) == observed({"edited": {}, "pii": {"email": 0}}) == ()
    assert by_number(counted["language"]) == []
    assert [name for name, _ in by_number({"0.9 to 1.0": 1, "0.5 to 0.6": 2})][0] == "0.5 to 0.6"


def test_many_rules_are_a_small_page():
    samples = tuple(DroppedDocument(f"{n:032x}", "&" * 301, "&" * 301) for n in range(20))
    removed = {f"filter:{n:04}": Removed(20, 2, 3, samples) for n in range(1000)}
    funnel = Funnel(20_000, 2000, 3000, removed=removed)
    page = _html(removals(funnel, dict.fromkeys(SIZES, 0))).encode()
    assert len(page) < 5_000_000
    assert "941 others −18,820 −2,823" in _text(page)


def test_a_failing_section_is_told_and_the_others_are_there(tmp_path, monkeypatch, caplog):
    write_mlm_set(tmp_path / "set")

    def packing(content: SetContent) -> None:
        raise ZeroDivisionError("<oops>")

    sections = [
        (title, packing if title == "Packing" else make) for title, make in set_sections.SECTIONS
    ]
    monkeypatch.setattr(set_sections, "SECTIONS", tuple(sections))
    text = _text(report_html(_content(tmp_path / "set")))
    assert "could not be written: ZeroDivisionError: &lt;oops&gt;" in text
    assert "Lengths" in text and "How to reproduce it" in text
    assert "report.html lacks its section 'Packing'" in caplog.text


def test_a_failing_page_is_told_and_no_file(caplog):
    def make() -> SetContent:
        raise OSError("no such shard")

    assert report_file(lambda: report_html(make())) == {}
    assert "no such shard" in caplog.text


def test_a_share_is_never_all_or_nothing_unless_it_is():
    written = {0: "0 %", 1: "100 %", 0.5: "50.0 %", 0.9996: "99.96 %", 0.99996: "99.996 %"}
    written |= {0.0004: "0.04 %", 1e-9: "< 0.001 %", 1 - 1e-9: "> 99.999 %"}
    assert {share: percent(share) for share in written} == written


# Figures worked by hand


def test_a_flow_keeps_its_widths_and_its_order():
    links = [("read", "train", 600), ("read", "rejected", 0), ("read", "validation", 400)]
    laid = flow(links, {"train": "blue"})
    assert laid is not None
    assert [(n.name, n.count, n.share, n.kind) for n in laid.left] == [("read", 1000, 1.0, "")]
    assert [(n.name, n.count, n.share, n.kind) for n in laid.right] == [
        ("train", 600, 0.6, "blue"),
        ("validation", 400, 0.4, ""),
    ]
    train, validation = laid.right
    assert train.height / validation.height == pytest.approx(1.5)
    assert train.top + train.height < validation.top
    # The ribbons leave the left bar one below the other.
    first, second = (list(map(float, re.findall(r"[\d.]+", path))) for path, _ in laid.ribbons)
    assert first[1] == pytest.approx(laid.left[0].top, abs=0.05)
    assert second[1] == pytest.approx(laid.left[0].top + train.height, abs=0.1)


def test_labels_of_tiny_flows_do_not_overlap():
    links = [("read", "train", 10**9)] + [("read", f"reason {n}", 1) for n in range(6)]
    laid = flow(links, {})
    assert laid is not None
    middles = [node.middle for node in laid.right]
    assert min(np.diff(middles)) >= 40 and middles[-1] < laid.height
    assert all(node.height >= 1.5 for node in laid.right)
    assert flow([("read", "train", 0)], {}) is flow([], {}) is None, "nothing flows"


def test_columns_are_shares_of_the_highest():
    def heights(*counts):
        drawn = render_part(ColumnChart([("a", count, "title", "blue") for count in counts]))
        return [float(height) for height in re.findall(r'height: ([\d.]+)%"', drawn)]

    assert heights(5, 0, 20) == [25, 0, 100]
    assert heights(0) == [0]


def test_labels_are_turned_where_there_is_no_room():
    def drawn(columns):
        return render_part(ColumnChart([(f"{n:05}", 1, "title", "") for n in range(columns)]))

    assert "turned" not in drawn(10) and drawn(10).count("<span>") == 10
    assert "turned" in drawn(11) and drawn(11).count("<span>") == 11
    assert drawn(60).count("<span>") == 20  # each third


@pytest.mark.parametrize("exponent", [0.7, 1.0, 1.5])
def test_the_line_through_a_power_law_is_its_exponent(exponent):
    counts = np.round(1e9 / np.arange(1, 20_001) ** exponent).astype(np.int64)
    curve = zipf(np.random.default_rng(0).permutation(counts))
    assert curve is not None
    assert curve.exponent == pytest.approx(exponent, abs=0.01)
    places = [tuple(map(float, point.split(","))) for point in curve.points.split()]
    assert places[0] == (0, 0) and places[-1][0] == 100
    assert all(0 <= x <= 100 and 0 <= y <= 100 for x, y in places)
    assert len(places) < 200
    assert [label for _, label in curve.across] == ["1", "10", "100", "1k", "10k"]


def test_too_few_tokens_have_no_line():
    for counts in ([0, 1], [7], [3, 3, 3, 3]):
        curve = zipf(np.array(counts))
        assert curve is not None and curve.fit == "" and curve.points
    assert zipf(np.zeros(9, np.int64)) is None


def test_numbers_in_few_characters():
    two = {0: "0", 950: "950", 999.6: "1k", 1234: "1.2k", 36_400: "36k", 100_000: "100k"}
    assert {number: compact(number, 2) for number in two} == two
    three = {1234: "1.23k", 36_400: "36.4k", 4_510_382: "4.51M", 12e9: "12G"}
    assert {number: compact(number, 3) for number in three} == three
