"""describe: every number is in the counts; the card, Croissant and the draft are read by others."""

import hashlib
import json
import re
import shutil
from pathlib import Path

import datasets
import pytest
import yaml

from tests.golden.outputs import KEPT
from tests.tools.corpus_factory import build, rows_of, write_lines
from textmill.pipelines.describe import main
from textmill.pipelines.description.counts import Count, Metadata
from textmill.pipelines.description.render import render_card
from textmill.schemas.errors import UsageError, spell

FILES = ["README.md", "croissant.json", "training_content.md"]
PAGE = "<html><head><title>T</title></head><body><h1>Page {0}</h1>{1}</body></html>"
PROSE = "<p>The old mill by the river grinds corn in the morning, and number {0} of them sings.</p>"
LICENSE = "<p><a rel=license href=https://creativecommons.org/licenses/by/4.0/>CC BY</a></p>"
# Of laws, versions, sections and the rule for domains; no other number stands outside a table.
FIXED = {"53", "1", "2024", "1689", "2025", "20", "000", "8"}


def write_warc(path: Path, hosts: list[str]) -> Path:
    records = []
    for number, host in enumerate(hosts):
        prose = "".join(PROSE.format(10 * number + line) for line in range(6))
        robots = b"X-Robots-Tag: noai\r\n" * (host == "refused.example")
        body = PAGE.format(number, prose + LICENSE).encode()
        content = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n" + robots + b"\r\n" + body
        records.append(
            f"WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: https://{host}/{number}\r\n"
            f"WARC-Date: 2024-05-18T01:58:{number:02}Z\r\nWARC-Record-ID: <urn:uuid:{number}>\r\n"
            f"Content-Type: application/http\r\nContent-Length: {len(content)}\r\n\r\n".encode()
            + content
            + b"\r\n\r\n"
        )
    path.write_bytes(b"".join(records))
    return path


def describe(directory, to: Path, *flags: str) -> dict[str, str]:
    main([str(directory), f"--to={to}", *flags])
    assert sorted(path.name for path in to.iterdir()) == FILES
    return {name: (to / name).read_text() for name in FILES}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    hosts = ["a.example"] * 3 + ["b.example"] * 2 + ["refused.example"]
    source = write_warc(folder / "crawl.warc", hosts)
    fields = "--keep_fields=url,date,robots,x_robots_tag,tdm_reservation,license"
    flags = [
        fields,
        "--respect=noai",
        "--language=en",
        "--language_identifier=quick",
        "--num_files=2",
    ]
    return build(source, folder / "corpus", *flags, "--pii=replace")


@pytest.fixture(scope="module")
def described(corpus, tmp_path_factory):
    return describe(corpus.directory, tmp_path_factory.mktemp("papers") / "of_corpus")


@pytest.fixture(scope="module")
def of_dataset(tmp_path_factory):
    to = tmp_path_factory.mktemp("papers") / "of_dataset"
    return describe(KEPT / "clm", to, f"--corpus={KEPT / 'corpus'}")


def resolve(position: str, directory: Path):
    """The values at a position; an oracle of its own."""
    file, _, pointer = position.partition("#")
    values = [json.loads((directory / file.rpartition("/")[2]).read_text())]
    for part in filter(None, pointer.split("/")):
        key = part.replace("~1", "/").replace("~0", "~")
        values = (
            [
                inner
                for value in values
                for inner in ([*value.values()] if isinstance(value, dict) else value)
            ]
            if key == "*"
            else [value[key] for value in values]
        )
    return values


def check_numbers(text: str, directories: dict[str, Path]) -> int:
    """Compares each row of a table with the files; returns the number of rows."""
    checked = 0
    for line in text.splitlines():
        row = re.fullmatch(
            r"\| (.*) \| (.*) \| `((?:\w+/)?[\w.]+\.json#[^`]*?)( \(entries\))?` \|", line
        )
        if row:
            _, value, position, is_length = row.groups()
            found = resolve(position, directories[position.split("#")[0].rpartition("/")[0]])
            if "parameters" in position:
                assert json.loads(value.strip("`").replace("¦", "|")) == found[0]
            elif value.endswith("%"):
                pages = int(row[1].split(" | ")[1].replace(",", ""))
                [whole] = resolve("stats.json#/observed/web_pages/pages", directories[""])
                assert [pages] == found and value == f"{pages / whole:.2%}"
            else:
                number = len(found[0]) if is_length else sum(found)
                assert int(value.replace(",", "")) == number, line
            checked += 1
        elif not line.startswith(("#", "- `")):
            plain = re.sub(r"[0-9a-f]{64}|Textmill [\d.]+", "", line)
            assert {*re.findall(r"\d+", plain)} <= FIXED, line
    return checked


@pytest.mark.parametrize("name", ["README.md", "training_content.md"])
def test_every_number_is_at_its_position(name, corpus, described, of_dataset):
    body = re.sub(r"^---\n.*?^---$", "", described[name], flags=re.S | re.M)
    assert check_numbers(body, {"": Path(corpus.directory)}) > 8
    body = re.sub(r"^---\n.*?^---$", "", of_dataset[name], flags=re.S | re.M)
    assert check_numbers(body, {"": KEPT / "clm", "corpus": KEPT / "corpus"}) > 8


def test_the_draft_has_the_sections_of_the_template_and_the_domains(described, corpus):
    text = described["training_content.md"]
    assert re.findall(r"^#+ (.*)$", text, re.M) == [
        "Draft: public summary of training content",
        "1. General information",
        "1.1 Provider identification",
        "1.2 Model identification",
        "1.3 Modalities, overall training data size and other characteristics",
        "2. List of data sources",
        "2.1 Publicly available datasets",
        "2.2 Private non-publicly available datasets obtained from third parties",
        "2.2.1 Datasets commercially licensed by rightsholders or their representatives",
        "2.2.2 Private datasets obtained from other third parties",
        "2.3 Data crawled and scraped from online sources",
        "2.4 User data",
        "2.5 Synthetic data",
        "2.6 Other sources of data",
        "3. Data processing aspects",
        "3.1 Respect of reservation of rights from text and data mining exception or limitation",
        "3.2 Removal of illegal content",
        "3.3 Other information (optional)",
    ]
    assert "| hosts in hosts.json | 3 | `hosts.json#/hosts (entries)` |" in text
    assert "| a.example | 3 | 50.00% | `hosts.json#/hosts/a.example/pages` |\n" in text
    assert re.findall(r"^\| (\w+)\.example", text, re.M) == ["a", "b", "refused"]
    assert "| en | 5 | `stats.json#/observed/language/en` |" in text
    assert f"- `{Path(corpus.directory).parent}/*.warc`" in text
    assert "| 2024 | 5 | `stats.json#/observed/documents_by_year/2024` |" in text
    assert "| license: cc-by-4.0 | 5 | `stats.json#/observed/documents_by_license/" in text
    assert "| respect:noai | 1 | `stats.json#/dropped/respect:noai` |" in text
    assert "E-mail and IP addresses were replaced" in text
    assert text.count("**A person must add:**") >= 10


def test_the_draft_of_a_dataset_has_its_tokens_and_the_sources_of_its_corpus(of_dataset):
    text = of_dataset["training_content.md"]
    assert "tokens of this dataset: less than 1 billion tokens." in text
    assert text.count("if data was crawled") == 1  # no web pages
    assert "| tokens | 1,239 | `stats.json#/total/tokens` |" in text
    assert "| documents read | 24 | `corpus/stats.json#/documents_read` |" in text


def test_datasets_reads_a_corpus_with_the_card(tmp_path, corpus, described):
    for file in corpus.documents:
        shutil.copy(f"{corpus.directory}/{file.path}", tmp_path)
    (tmp_path / "other.parquet").write_text("no documents")
    (tmp_path / "README.md").write_text(described["README.md"])
    found = datasets.load_dataset(str(tmp_path), cache_dir=str(tmp_path / "cache"))
    assert {name: split.to_list() for name, split in found.items()} == {"train": rows_of(corpus)}


def test_the_card_of_a_dataset_names_the_export_that_datasets_reads(of_dataset):
    head = yaml.safe_load(of_dataset["README.md"].split("---")[1])
    assert head == {
        "pretty_name": "clm",
        "license": "unknown",
        "size_categories": ["n<1K"],
        "tags": ["textmill", "croissant"],
        "viewer": False,
    }
    assert "--to=parquet" in of_dataset["README.md"]


@pytest.mark.parametrize(
    ("documents", "category"),
    [(999, "n<1K"), (1000, "1K<n<10K"), (10**12 - 1, "100B<n<1T"), (10**12, "n>1T")],
)
def test_the_card_has_the_size_category_of_the_hub(documents, category):
    schema = {
        **{"file_format": "jsonl", "columns": ["id", "text"], "code_version": "0"},
        **{"fingerprint": "0", "parameters": {"language": {"no": 0, "nn": 0.5}}},
    }
    stats = {"files": {"a": {"documents": documents}}, "dropped": {"filter:<b>|`x`": 1}}
    card = render_card(Metadata("corpus", "a", {"schema.json": schema, "stats.json": stats}), [])
    head = yaml.safe_load(card.split(b"---")[1])
    assert head["size_categories"] == [category]
    assert head["language"] == ["nb", "nn"]
    [config] = head["configs"]
    assert config["data_files"] == [{"split": "train", "path": "documents-*.jsonl.zst"}]
    # A reason of a user's filter does not break the table.
    assert r"| filter:\<b\>\|\`x\` | 1 | `stats.json#/dropped/filter:<b>¦'x'` |" in card.decode()


def test_counts_add_up_and_have_positions():
    files = {"stats.json": {"files": {"a/b": {"n": 2}, "c": {"n": 3}}, "flag": True}}
    metadata = Metadata("corpus", "x", files, "x/")
    assert metadata.count("stats.json", "files", "*", "n") == Count(5, "x/stats.json#/files/*/n")
    assert metadata.counts("stats.json", "files", "*", "n") == {
        "c": Count(3, "x/stats.json#/files/c/n"),
        "a/b": Count(2, "x/stats.json#/files/a~1b/n"),
    }
    assert metadata.count("stats.json", "none") == Count(0, "x/stats.json#/none")


def test_croissant_lists_the_files_of_the_manifest(corpus, described, of_dataset):
    for text, directory in ((described, Path(corpus.directory)), (of_dataset, KEPT / "clm")):
        values = json.loads(text["croissant.json"])
        assert values["conformsTo"] == [
            "http://mlcommons.org/croissant/1.1",
            "http://mlcommons.org/croissant/RAI/1.0",
        ]
        steps = values["rai:dataPreprocessingProtocol"]
        assert all(
            re.fullmatch(r"build_corpus: \w+ = .+ \((corpus/)?schema.json#/.+\)", one)
            for one in steps
        )
        files = [file for file in values["distribution"] if file["@type"] == "cr:FileObject"]
        assert len(files) == 2
        for file in files:
            content = (directory / file["contentUrl"]).read_bytes()
            assert file["contentSize"] == f"{len(content)} B"
            assert file["sha256"] == hashlib.sha256(content).hexdigest()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of rdflib and pandas
def test_mlcroissant_reads_the_documents(tmp_path, corpus, described):
    mlcroissant = pytest.importorskip("mlcroissant", reason="mlcroissant is not installed")
    for file in corpus.documents:
        shutil.copy(f"{corpus.directory}/{file.path}", tmp_path)
    (tmp_path / "croissant.json").write_text(described["croissant.json"])
    found = mlcroissant.Dataset(jsonld=str(tmp_path / "croissant.json"))
    assert not found.metadata.ctx.issues.errors
    steps = found.metadata.data_preprocessing_protocol
    assert 'build_corpus: pii = "replace" (schema.json#/parameters/pii)' in steps
    records = [
        {name.partition("/")[2]: text_of(value) for name, value in record.items()}
        for record in found.records("documents")
    ]
    assert records == rows_of(corpus)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of rdflib and pandas
def test_mlcroissant_reads_the_features_of_a_dataset(tmp_path, of_dataset):
    mlcroissant = pytest.importorskip("mlcroissant", reason="mlcroissant is not installed")
    (tmp_path / "croissant.json").write_text(of_dataset["croissant.json"])
    found = mlcroissant.Dataset(jsonld=str(tmp_path / "croissant.json"))
    assert not found.metadata.ctx.issues.errors
    names = [text_of(record["features/name"]) for record in found.records("features")]
    assert names == ["input_ids", "loss_weights", "segment_ids"]


def text_of(value) -> str:
    """pandas decides whether texts are bytes."""
    return value.decode() if isinstance(value, bytes) else value


def test_files_of_a_user_stay(tmp_path):
    to = tmp_path / "to"
    to.mkdir()
    describe(KEPT / "corpus", to)  # an empty directory needs no flag
    (to / "README.md").write_text("mine")
    with pytest.raises(UsageError) as error:
        main([str(KEPT / "corpus"), f"--to={to}"])
    assert "has files (README.md)" in spell(str(error.value))
    assert (to / "README.md").read_text() == "mine"
    (to / "notes.txt").write_text("mine")
    main([str(KEPT / "corpus"), f"--to={to}", "--overwrite"])
    assert sorted(path.name for path in to.iterdir()) == sorted([*FILES, "notes.txt"])
    assert (to / "README.md").read_text() != "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["to"]


def test_what_cannot_be_described_is_refused(tmp_path):
    corpus, dataset = KEPT / "corpus", KEPT / "clm"
    other = build(write_lines(tmp_path / "a.jsonl", ["a b"]), tmp_path / "other").directory
    (tmp_path / "file").write_text("")
    refusals = {
        (KEPT / "bpe", tmp_path / "to"): "is a tokenizer: give the directory of a corpus or",
        (corpus, corpus): "contains a corpus (MANIFEST.json), which lists its own files",
        (corpus, tmp_path / "file"): "is a file: give a directory",
        (corpus, "gs://bucket/to"): "is written to a disk",
        (corpus, ""): "is empty: give the directory",
        (dataset, tmp_path / "to", f"--corpus={other}"): "was built from other inputs than",
        (corpus, tmp_path / "to", f"--corpus={other}"): "is a corpus; give it with a dataset",
    }
    for (directory, to, *flags), message in refusals.items():
        with pytest.raises(UsageError) as error:
            main([str(directory), f"--to={to}", *flags])
        assert message in spell(str(error.value))
        assert not (tmp_path / "to").exists()
