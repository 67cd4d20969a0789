"""build_corpus beside datatrove: from WARC, and from JSON Lines with all that cleans, in one run.

    python -m tests.benchmarks.compare_corpus --python=DIR/bin/python --pages=FOLDER_OF_HTML

FOLDER_OF_HTML holds web pages (.html, .html.gz), such as those of a benchmark of extraction: they
become a WARC file of --megabytes. The JSON Lines are as much of IMDB's reviews of ../shared/data,
and 1,000 of them are targets of decontamination. Both tools read the same file. Figures are
megabytes of input for a second of processor time, of whole commands, start-up included, and
documents kept. build_corpus runs twice: the first run may compile its loops.
"""

import gzip
import io
import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Literal

import tyro
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

import textmill
from tests.benchmarks.corpora import unpacked
from tests.benchmarks.measure import run_command, seconds_of
from tests.tools.places import ROOT

SCRIPT = ROOT / "tests/benchmarks/scripts/corpus_datatrove.py"
QUALITY = ("--quality=gopher,c4,fineweb",)


@dataclass(frozen=True)
class Comparison:
    """What is compared."""

    python: str
    """The interpreter of an environment with datatrove."""
    pages: Path
    """A folder with web pages."""
    megabytes: int = 100
    """Of pages, and of reviews. datatrove needs a second or more of CPU time for each."""
    kinds: tuple[Literal["warc", "jsonl"], ...] = ("warc", "jsonl")
    """What to read."""


def pages_of(folder: Path) -> Iterator[bytes]:
    """All pages of a folder."""
    for path in sorted(folder.rglob("*.html*")):
        content = path.read_bytes()
        yield gzip.decompress(content) if path.suffix == ".gz" else content


def write_warc(path: Path, pages: list[bytes], megabytes: int) -> float:
    """Writes responses with these pages, again and again, each time with other words at their end.

    Returns:
      Megabytes of pages.
    """
    size = 0
    with open(path, "wb") as file:
        writer = WARCWriter(file, gzip=True)
        for number, page in enumerate(cycle(pages)):
            if size > megabytes * 1e6:
                break
            mark = f"<p>This is copy number {number} of the page.</p></body>".encode()
            page = page.replace(b"</body>", mark)
            size += len(page)
            head = StatusAndHeaders("200 OK", [("Content-Type", "text/html")], protocol="HTTP/1.1")
            record = writer.create_warc_record(
                f"https://example.org/{number}",
                "response",
                payload=io.BytesIO(page),
                http_headers=head,
            )
            writer.write_record(record)
    return size / 1e6


def write_reviews(path: Path, megabytes: float) -> float:
    """Writes IMDB's reviews up to a size; megabytes of text."""
    size = 0
    with open(path, "w", encoding="utf-8") as file:
        for part in ("train", "test"):
            for line in filter(None, unpacked(f"imdb/{part}.jsonl.zst").split(b"\n")):
                text = json.loads(line)["text"].replace("<br />", "\n")
                if size > megabytes * 1e6:
                    return size / 1e6
                file.write(json.dumps({"text": text}) + "\n")
                size += len(text.encode())
    return size / 1e6


def main(options: Comparison) -> None:
    """Prints a table."""
    pages = list(pages_of(options.pages))
    print("| from | Textmill, MB/s | datatrove, MB/s | times | kept by each |")
    print("|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        targets = folder / "targets.jsonl"
        write_reviews(targets, 1)
        flags = {
            "warc": ("--html=main", "--language=en:0.65", *QUALITY, "--keep_fields=url,date"),
            "jsonl": (*QUALITY, "--near_duplicates=jaccard:0.8", f"--decontaminate={targets}"),
        }
        for kind in options.kinds:
            given, scratch = folder / kind, str(folder / f"{kind}-scratch")
            given.mkdir()
            if kind == "warc":
                size = write_warc(given / "pages.warc.gz", pages, options.megabytes)
            else:
                size = write_reviews(given / "reviews.jsonl", options.megabytes)
            for output in (f"{folder}/{kind}-first", f"{folder}/{kind}-corpus"):
                arguments = [f"--input={given}", f"--output={output}", *flags[kind]]
                ours = size / seconds_of("pipelines.build_corpus", *arguments).cpu
            kept = textmill.Corpus(f"{folder}/{kind}-corpus").stats.total().documents
            command = [options.python, str(SCRIPT), kind, str(given), scratch, str(targets)]
            seconds, printed = run_command(command)
            peer = size / seconds.cpu
            both = f"{kept:,}, {json.loads(printed.splitlines()[-1])['documents']:,}"
            print(f"| {kind} | {ours:.2f} | {peer:.3f} | {ours / peer:.1f} | {both} |", flush=True)


if __name__ == "__main__":
    main(tyro.cli(Comparison))
