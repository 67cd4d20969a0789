"""--respect: which pages are dropped, how they are counted, and what is refused."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

from tests.pipelines.readers.test_page_rights import BY, write_warc
from tests.tools.corpus_factory import build, rows_of, texts_of
from textmill.pipelines.corpus.filters import Filters, rules_of
from textmill.pipelines.corpus.rules.respect import Respect
from textmill.pipelines.verify import main as verify
from textmill.schemas.errors import DataError, UsageError, spell

FIELDS = "--keep_fields=url,robots,x_robots_tag,tdm_reservation,license"
RESPONSES = [
    ("", f"<p>a plain page, <a rel=license href={BY}>CC BY</a></p>"),
    ("", "<meta name=robots content='noindex, noai'><p>an element refuses</p>"),
    ("X-Robots-Tag: otherbot: noimageai\r\n", "<p>a header refuses</p>"),
    ("TDM-Reservation: 1\r\n", "<p>a header reserves</p>"),
    ("TDM-Reservation: 0\r\nX-Robots-Tag: noindex\r\n", "<p>nothing is reserved</p>"),
    ("", "<meta name=tdm-reservation content=1><meta name=robots content=noai><p>both</p>"),
]


@pytest.mark.parametrize(
    ("value", "refuses"),
    [
        ("noai", True),
        ("noindex, noimageai", True),
        ("somebot: noai, noindex", True),
        ("NOAI", True),
        ("noaix, anoai", False),
        ("no ai", False),
        ("", False),
    ],
)
def test_values_that_refuse_ai(value, refuses):
    [rule] = rules_of(Filters(respect=Respect(("noai",))))
    for columns in ([value], [""]), ([""], [value]):
        arrays = [pa.array(column, pa.large_string()) for column in columns]
        judged = rule.judge(pa.array(["x"], pa.large_string()), *arrays)
        assert judged.reason.tolist() == [refuses]
        assert judged.measured is not None
        assert not refuses or judged.measured.tolist() == [value]


@pytest.fixture
def source(tmp_path):
    return write_warc(tmp_path / "a.warc", *RESPONSES)


def test_pages_are_dropped_and_counted_by_reason(tmp_path, source, capsys):
    flags = [FIELDS, "--respect=noai,tdm", "--html=all", "--keep_rejects"]
    corpus = build(source, tmp_path / "corpus", *flags)
    assert texts_of(corpus) == ["a plain page, CC BY", "nothing is reserved"]
    assert corpus.stats.dropped == {"respect:tdm": 2, "respect:noai": 2}
    assert corpus.schema.parameters["respect"] == "noai,tdm"
    # No text of such a page is in the metadata.
    assert all(removed.samples == () for removed in corpus.stats.funnel.removed.values())
    counts = {name: n for name, n in corpus.stats.observed.items() if name.startswith("documents_")}
    assert counts == {
        "documents_by_license": {"cc-by-4.0": 1},
        "documents_by_tdm_reservation": {"0": 1},
        "documents_by_x_robots_tag": {"noindex": 1},
        "documents_with_field": {"license": 1, "tdm_reservation": 1, "url": 2, "x_robots_tag": 1},
    }
    lines = Path(corpus.directory, "rejects", "filtered.jsonl").read_text().splitlines()
    rejected = {(row["url"][-1], row["reason"], row["measured"]) for row in map(json.loads, lines)}
    assert rejected == {
        ("1", "respect:noai", "noindex, noai"),
        ("2", "respect:noai", "otherbot: noimageai"),
        ("3", "respect:tdm", "1"),
        ("5", "respect:tdm", "1"),
    }
    assert "is missing or empty" not in capsys.readouterr().out
    verify([corpus.directory])


def test_one_name_drops_its_pages_only(tmp_path, source):
    corpus = build(source, tmp_path / "corpus", FIELDS, "--respect=tdm", "--html=all")
    assert corpus.stats.dropped == {"respect:tdm": 2}
    assert corpus.stats.observed["documents_by_robots"] == {"noai": 1, "noindex": 1}
    robots = {row["url"][-1]: row["robots"] for row in rows_of(corpus) if row["robots"]}
    assert robots == {"1": "noindex, noai"}


def test_verify_compares_the_counts_with_the_columns(tmp_path, source):
    corpus = build(source, tmp_path / "corpus", FIELDS, "--html=all")
    content = Path(corpus.directory, "stats.json").read_text()
    rewrite(Path(corpus.directory), content.replace("cc-by-4.0", "cc-by-3.0"))
    with pytest.raises(DataError, match="documents_by_license is not {'cc-by-4.0': 1}"):
        verify([corpus.directory])


def rewrite(directory: Path, content: str) -> None:
    """Replaces stats.json, and its sha256 in the manifest."""
    from textmill.pipelines.writers.shard_files import describe_file
    from textmill.schemas.format.manifest import MANIFEST, Manifest
    from textmill.schemas.typed_json import to_json

    (directory / "stats.json").write_text(content)
    manifest = Manifest.from_dict(json.loads((directory / MANIFEST).read_text()), MANIFEST)
    files = tuple(
        describe_file("stats.json", content.encode()) if file.path == "stats.json" else file
        for file in manifest.files
    )
    changed = Manifest(manifest.format_version, manifest.fingerprint, files)
    (directory / MANIFEST).write_bytes(to_json(changed.to_dict()))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--respect=ai"], "--respect=ai: give tdm, noai, or tdm,noai"),
        (["--respect="], "give tdm, noai, or tdm,noai"),
        (["--respect=tdm"], "--respect=tdm needs each document's tdm_reservation: --keep_fields"),
        (["--respect=noai", "--keep_fields=robots"], "needs each document's x_robots_tag"),
    ],
)
def test_what_is_refused(tmp_path, source, flags, message):
    with pytest.raises(UsageError) as error:
        build(source, tmp_path / "corpus", *flags)
    assert message in spell(str(error.value))
