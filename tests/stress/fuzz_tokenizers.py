"""Loads changed tokenizer files for a time: `python -m tests.stress.fuzz_tokenizers --minutes=60`.

Each mutant (`tokenizer_mutants`) is loaded in a process of its own with limits on time and memory.
An accepted mutant encodes hard texts with the backend that Textmill chooses and with
`tokenizers`; some are built into a dataset, which must verify. Prints what was changed and how it
ended. Exit code 1 if a mutant ended in anything but an error that Textmill words, or equal ids.
"""

import json
import os
import random
import tempfile
import time
from collections import Counter
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path

import pyarrow as pa
import tyro

from schemas.commands.entry import run_entry
from schemas.errors import DataError, TextmillError
from tests.tools.limited_child import Limits, run_apart
from tests.tools.tokenizer_mutants import Mutant, draw_mutant, shapes

LIMITS = Limits(cpu_seconds=20, more_bytes=1 << 30, data_bytes=2 << 30)  # for small texts
GOOD = ("refused", "equal", "failed with an error", "verified", "not built")
_TEXTS = (
    "",
    " ",
    "The quick brown fox, who's 12 years old, doesn't jump over the lazy dogs' beds.",
    "  two  spaces,\n\na tab\tand 3.14 ``quoted''\r\n",
    "Blåbærsyltetøy på Ærø e\u0301\u0302 ﷺ \u0130 ½ Ⅷ ١٢٣ ก้ 한국어 中文字符 \U0001f469\u200d",
    "a\0b\x1c\x85\u2028\u200b\ufeff\ufffd\uffff\U0010ffff \U000323b0",
    "aaaa" * 700,
    "x" * 3000 + " " * 300 + "'s" * 400,
    "<s>a<s> <mask></s><unk>  <pad>\n<mask> [MASK][CLS] <|tool|> <0x41> <x7><x7>",
    "中文" * 500 + "ab " * 500,
)


@dataclass(frozen=True)
class Options:
    """How long, and of what."""

    minutes: float = 1.0
    """Time to take, at most."""
    mutants: int | None = None
    """How many to try, at most."""
    seed: int = 1
    """All changes follow from it."""
    findings: str | None = None
    """A directory: mutants that came to a bad end are kept here."""
    builds: int = 8
    """One in so many of the accepted is built into a set, which must verify."""


@dataclass
class Tally:
    """Trials and how they ended.

    Attributes:
      outcomes: outcome to mutants.
      changes: (path, kind) of all changes.
      kinds: (kind, outcome) to mutants.
      worst: seconds of the slowest mutant.
      findings: outcome, the error, and the mutant.
    """

    outcomes: Counter[str] = field(default_factory=Counter)
    changes: set[tuple[str, str]] = field(default_factory=set)
    kinds: Counter[tuple[str, str]] = field(default_factory=Counter)
    worst: float = 0.0
    findings: list[tuple[str, str, Mutant]] = field(default_factory=list)


def main(argv: list[str]) -> None:
    """Runs mutants, prints tables, keeps findings."""
    options = tyro.cli(
        Options, prog="python -m tests.stress.fuzz_tokenizers", args=argv, use_underscores=True
    )
    tally = fuzz(options)
    _print_table(tally)
    if tally.findings:
        raise DataError(f"{len(tally.findings)} mutants came to a bad end")


def fuzz(options: Options) -> Tally:
    """Draws and tries mutants until the time is up, or as many as requested."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # a forked child has none of its threads
    _import_all()
    draw, of, tally = random.Random(options.seed), shapes(), Tally()
    stop = time.monotonic() + 60 * options.minutes
    while time.monotonic() < stop and tally.outcomes.total() != options.mutants:
        mutant = draw_mutant(draw, of)
        task = draw.choice(_TASKS) if draw.randrange(options.builds) == 0 else ""
        began = time.monotonic()
        outcome, said = try_mutant(mutant.data, task=task)
        tally.worst = max(tally.worst, time.monotonic() - began)
        tally.outcomes[outcome] += 1
        tally.changes.update(mutant.changes)
        tally.kinds.update((kind, outcome) for _, kind in mutant.changes)
        if outcome not in GOOD:
            tally.findings.append((outcome, said, mutant))
            _keep(options.findings, tally)
    return tally


def _import_all() -> None:
    """Imports that every child needs."""
    import apache_beam  # noqa: F401
    import awkward  # noqa: F401
    import gigatoken  # noqa: F401

    import pipelines.build.transforms  # noqa: F401
    import pipelines.build_shards  # noqa: F401
    import pipelines.verify  # noqa: F401
    import trainers.models.set_tokenizer  # noqa: F401


def try_mutant(data: bytes, *, task: str) -> tuple[str, str]:
    """Loads, encodes and perhaps builds in a child: how it ended, and what was printed."""
    with tempfile.TemporaryDirectory(prefix="textmill-fuzz-") as folder:
        outcome = run_apart(lambda: _outcome(data, folder, task=task), Path(folder), LIMITS)
        if outcome.kind == "accepted":
            return outcome.value[0], outcome.value[1]
        printed = (Path(folder) / "printed").read_text(errors="backslashreplace")
        return outcome.kind, f"{outcome.said}\n{printed}"


def _outcome(data: bytes, folder: str, *, task: str) -> tuple[str, str]:
    from tokenizers import Tokenizer

    from pipelines.encoding.tokenizer import LoadedTokenizer
    from pipelines.tasks.classification import pair_form
    from schemas.untrusted.tokenizer_bounds import read_tokenizer_json, token_ids
    from trainers.models.set_tokenizer import open_tokenizer

    try:
        loaded = LoadedTokenizer(data)
    except TextmillError as error:
        if not str(error).isprintable():
            return "unprintable", repr(str(error))
        return "refused", str(error)
    if LoadedTokenizer(loaded.json).json != loaded.json:
        return "another in a worker", ""
    reference = Tokenizer.from_buffer(data)
    reference.no_truncation()
    reference.no_padding()
    if {len(loaded.token_bytes), len(loaded.is_word_start)} != {loaded.vocab_size}:
        return "other lengths", ""
    open_tokenizer(loaded.json)
    if (
        max(token_ids(read_tokenizer_json(loaded.json, "tokenizer.json")).values()) + 1
        != loaded.vocab_size
    ):
        return "other ids", "in trainers"
    try:
        found, _ = loaded.encode(pa.array(_TEXTS, pa.large_string()))
    except TextmillError as error:
        return "failed with an error", str(error)
    for i, text in enumerate(_TEXTS):
        expected = reference.encode(text, add_special_tokens=False).ids
        ids = found.values[found.offsets[i] : found.offsets[i + 1]].tolist()
        if ids != expected:
            return "other ids", f"{loaded.backend}: {text[:80]!r}: {ids[:50]} != {expected[:50]}"
    for text, ids in loaded.golden:
        try:
            loaded.decode(ids)
            _ = pair_form(loaded)
        except TextmillError as error:
            return "failed with an error", f"{text!r}: {error}"
    return _built(data, folder, task) if task else ("equal", "")


def _built(data: bytes, folder: str, task: str) -> tuple[str, str]:
    """A set of a few documents, of the tokenizer as it is; it must verify."""
    from pipelines.build_shards import main as build_shards
    from pipelines.inspection.checks.set_check import verify_set
    from pipelines.runners.launch import IN_PROCESS

    place = Path(folder)
    (place / "tokenizer.json").write_bytes(data)
    lines = (json.dumps({"text": text}) for text in _TEXTS)
    (place / "text.jsonl").write_text("\n".join(lines) + "\n")
    flags = [f"--{name}={place / file}" for name, file in _FILES.items()]
    try:
        with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            build_shards([*flags, "--num_shards=2", f"--runner={IN_PROCESS}", f"--task={task}"])
    except TextmillError as error:
        return "not built", str(error)
    problems = verify_set(str(place / "set"), lambda _: None).problems
    return ("not verified", "\n".join(problems)) if problems else ("verified", "")


_TASKS = ("clm", "mlm")
_FILES = {"input": "text.jsonl", "tokenizer": "tokenizer.json", "output": "set"}


def _keep(folder: str | None, tally: Tally) -> None:
    """The newest finding as two files: the mutant, and how it ended."""
    outcome, said, mutant = tally.findings[-1]
    changes = ", ".join(f"{kind} at {path}" for path, kind in mutant.changes)
    print(f"{outcome}: {mutant.shape}, {changes!a}: {said.strip()[-300:]!a}", flush=True)
    if folder:
        os.makedirs(folder, exist_ok=True)
        name = Path(folder) / f"{len(tally.findings):04}-{outcome.replace(' ', '-')}"
        name.with_suffix(".json").write_bytes(mutant.data)
        name.with_suffix(".txt").write_text(f"{mutant.shape}: {changes!a}\n{said}")


def _print_table(tally: Tally) -> None:
    outcomes = [outcome for outcome, _ in tally.outcomes.most_common()]
    paths = {path for path, _ in tally.changes}
    print(
        f"{tally.outcomes.total():,} mutants, {len(paths):,} paths, {len(tally.changes):,} paths x "
        f"kinds; the slowest took {tally.worst:.1f} s\n"
    )
    print(f"| change | {' | '.join(outcomes)} |\n|---|{'---:|' * len(outcomes)}")
    for kind in sorted({kind for kind, _ in tally.kinds}):
        print(f"| {kind} | {' | '.join(f'{tally.kinds[kind, o]:,}' for o in outcomes)} |")
    print(f"| all | {' | '.join(f'{tally.outcomes[o]:,}' for o in outcomes)} |")


if __name__ == "__main__":
    run_entry(main)
