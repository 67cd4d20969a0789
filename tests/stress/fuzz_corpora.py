"""Changes every field of a corpus's metadata files: `python -m tests.stress.fuzz_corpora`.

One field changes at a time, each in every way of `field_damage`, under checksums that are right.
`find_corpus`, which opens a corpus as an input, and `verify` read each changed corpus. A finding is
an exception that no user should see, a change that `find_corpus` refuses and `verify` accepts, and
a change that `verify` accepts although the field is not one of STATED_ONCE. The table counts how
the changes of each field ended. Exit code 1 if there was a finding.
"""

import random
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import tyro

from tests.tools.corpus_damage import change_one, outcome_of, single_changes
from tests.tools.corpus_factory import build, write_lines
from textmill.pipelines.corpus.corpus_check import check_corpus
from textmill.pipelines.readers.corpus_files import find_corpus
from textmill.schemas.commands.entry import run_entry
from textmill.schemas.errors import DataError

# Fields that nothing else in a corpus states, by the beginning of "file: field".
STATED_ONCE = {
    "MANIFEST.json: files.": "files that a corpus may lack; verify prints a note",
    "inputs.json: files": "where the text was; the files that it names are not part of the corpus",
    "schema.json: code_version": "of who wrote it",
    "schema.json: parameters.": "documents show what they made; those that readers use have kinds",
    "stats.json: funnel.removed": "samples of documents that are not in the corpus",
    "stats.json: observed": "what rules and the search for near-duplicates counted on their way",
    "stats.json: source_bytes": "of the inputs, which are not there to be measured",
}
_FLAGS = ("--keep_fields=url", "--num_files=2", "--near_duplicates=jaccard:0.8", "--min_chars=30")
_MORE = ("--keep_rejects", "--max_rejects=-1", "--pii=replace")


@dataclass(frozen=True)
class Options:
    """How much is changed."""

    trials: int = 1_000_000
    """Changes, at most."""
    seed: int = 1
    """Of their order."""


def build_pristine(folder: Path) -> Path:
    """A corpus with removed documents of four kinds."""
    texts = [" ".join(f"word{n}" for n in range(3 * i, 3 * i + 30)) for i in range(40)]
    records = [{"text": text, "url": f"u{number}"} for number, text in enumerate(texts)]
    near = [{"text": f"{text} x", "url": "near"} for text in texts[:4]]
    others = [{"text": "short"}, {"text": "tiny"}, {"text": texts[5]}, {"no": "text"}]
    source = write_lines(folder / "source.jsonl", [*records, *near, *others])
    return Path(build(source, folder / "corpus", *_FLAGS, *_MORE).directory)


def verify(directory: str) -> None:
    """Raises DataError if `verify` finds a problem."""
    if problems := check_corpus(directory).problems:
        raise DataError(problems[0])


def judge(found: str, verified: str, field: str) -> str:
    """One word for what happened to a change; capitals for a finding."""
    if {found, verified} - {"accepted", "refused"}:
        return f"{found}, {verified}".upper()
    if verified == "refused":
        return "found" if found == "refused" else "found by verify"
    if found == "refused":
        return "VERIFY ACCEPTS"
    return "stated once" if field.startswith(tuple(STATED_ONCE)) else "MISSED"


def main(argv: list[str]) -> None:
    """Changes a corpus, and prints the table."""
    options = tyro.cli(Options, prog="python -m tests.stress.fuzz_corpora", args=argv)
    table: dict[str, Counter[str]] = {}
    with tempfile.TemporaryDirectory(prefix="textmill-fuzz-") as name:
        pristine, directory = build_pristine(Path(name)), Path(name) / "changed"
        changes = list(single_changes(pristine))
        random.Random(options.seed).shuffle(changes)
        for file, way, path in changes[: options.trials]:
            if not change_one(pristine, directory, file, way, path):
                continue
            found = outcome_of(lambda: find_corpus(str(directory)))
            verified = outcome_of(lambda: verify(str(directory)))
            parts = ["*" if isinstance(p, int) or "-of-" in p else p for p in path]
            field = f"{file}: {'.'.join(parts)}"
            kind = judge(found, verified, field)
            table.setdefault(field, Counter())[kind] += 1
            if kind.isupper():
                print(f"{kind}: {field}: {way}, {path}", flush=True)
    for field in sorted(table):
        print(f"| {field} | {dict(sorted(table[field].items()))} |")
    total = sum(table.values(), Counter[str]())
    print(f"{total.total():,} changes: {dict(sorted(total.items()))}")
    if any(kind.isupper() for kind in total):
        raise DataError("there were findings")


if __name__ == "__main__":
    run_entry(main)
