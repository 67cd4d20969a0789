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
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import pyarrow as pa
import tyro

from tests.stress.limited_child import Limits, run_apart
from tests.stress.tokenizer_mutants import draw_mutant, shapes
from textmill.schemas.commands.entry import run_entry
from textmill.schemas.errors import DataError, TextmillError

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
    """How long, and which mutants."""

    minutes: float = 1.0
    """No new mutant is tried after that."""
    mutants: int = 1_000_000_000
    """Number of mutants, at most."""
    seed: int = 1
    """All choices follow from it."""
    mutant: int | None = None
    """This one only, to repeat it; its tokenizer.json is printed."""
    builds: int = 8
    """One in so many of the accepted is built into a dataset, which must verify."""


def main(argv: list[str]) -> None:
    """Runs mutants, prints each finding with the line that repeats it, and then a table."""
    program = "python -m tests.stress.fuzz_tokenizers"
    options = tyro.cli(Options, prog=program, args=argv, use_underscores=True)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # a forked child has none of its threads
    _import_all()
    of, worst, outcomes = shapes(), 0.0, Counter[str]()
    kinds = Counter[tuple[str, str]]()
    stop = time.monotonic() + 60 * options.minutes
    for number in range(options.mutants) if options.mutant is None else (options.mutant,):
        began = time.monotonic()
        if began > stop:
            break
        draw = random.Random(f"{options.seed}/{number}")
        mutant = draw_mutant(draw, of)
        task = draw.choice(_TASKS) if draw.randrange(options.builds) == 0 else ""
        outcome, said = try_mutant(mutant.data, task=task)
        worst = max(worst, time.monotonic() - began)
        outcomes[outcome] += 1
        kinds.update((kind, outcome) for _, kind in mutant.changes)
        if outcome not in GOOD:
            print(f"{outcome}: {mutant.shape}, {mutant.changes!a}: {said.strip()[-300:]!a}")
            print(f"again: {program} --seed={options.seed} --mutant={number}", flush=True)
        if options.mutant is not None:
            print(mutant.data.decode(errors="backslashreplace"))
    print(f"{outcomes.total():,} mutants; the slowest took {worst:.1f} s\n")
    print(f"| change | {' | '.join(outcomes)} |\n|---|{'---:|' * len(outcomes)}")
    for kind in sorted({kind for kind, _ in kinds}):
        print(f"| {kind} | {' | '.join(f'{kinds[kind, outcome]:,}' for outcome in outcomes)} |")
    bad = sum(count for outcome, count in outcomes.items() if outcome not in GOOD)
    if bad:
        raise DataError(f"{bad} mutants came to a bad end")


def _import_all() -> None:
    """Imports that every child needs."""
    import apache_beam  # noqa: F401
    import awkward  # noqa: F401
    import gigatoken  # noqa: F401

    import textmill.pipelines.build_shards  # noqa: F401
    import textmill.pipelines.shards.transforms  # noqa: F401
    import textmill.pipelines.verify  # noqa: F401
    import textmill.trainers.models.set_tokenizer  # noqa: F401


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

    from textmill.pipelines.encoding.tokenizer import LoadedTokenizer
    from textmill.pipelines.tasks.classification import pair_form
    from textmill.schemas.tokenizers.tokenizer_json import read_tokenizer_json, token_ids
    from textmill.trainers.models.set_tokenizer import open_tokenizer

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
        backend = loaded.load_backend()
        found = loaded.encode(pa.array(_TEXTS, pa.large_string()))
    except TextmillError as error:
        return "failed with an error", str(error)
    for i, text in enumerate(_TEXTS):
        expected = reference.encode(text, add_special_tokens=False).ids
        ids = found.values[found.offsets[i] : found.offsets[i + 1]].tolist()
        if ids != expected:
            return "other ids", f"{backend}: {text[:80]!r}: {ids[:50]} != {expected[:50]}"
    for text, ids in loaded.golden:
        try:
            loaded.decode(ids)
            _ = pair_form(loaded)
        except TextmillError as error:
            return "failed with an error", f"{text!r}: {error}"
    return _built(data, folder, task) if task else ("equal", "")


def _built(data: bytes, folder: str, task: str) -> tuple[str, str]:
    """A set of a few documents, of the tokenizer as it is; it must verify."""
    from textmill.pipelines.build_shards import main as build_shards
    from textmill.pipelines.inspection.checks.set_check import verify_dataset
    from textmill.pipelines.runners.launch import IN_PROCESS

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
    problems = verify_dataset(str(place / "set"), lambda _: None).problems
    return ("not verified", "\n".join(problems)) if problems else ("verified", "")


_TASKS = ("clm", "mlm")
_FILES = {"input": "text.jsonl", "tokenizer": "tokenizer.json", "output": "set"}


if __name__ == "__main__":
    run_entry(main)
