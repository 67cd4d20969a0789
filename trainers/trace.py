"""Entry: which documents a step of a run trained on, and which steps trained on a document.

    python -m trainers.trace RUN --step=500 --corpus=corpus
    python -m trainers.trace RUN --steps=480:520 --above=4.0
    python -m trainers.trace RUN RUN --document=4f2a... --json
    python -m trainers.trace RUN --text=page.txt
    python -m trainers.trace RUN RUN --forgotten=DIGESTS.txt

RUN is the directory of a run, finished or not.
"""

from __future__ import annotations

import json

from textmill.schemas.commands.entry import run_entry
from textmill.schemas.commands.terminal import say
from textmill.schemas.errors import FieldError
from textmill.schemas.format.digests import parse_digest, read_digests
from textmill.trainers.flags.command_line import parse_groups
from textmill.trainers.use.corpus_texts import CorpusTexts
from textmill.trainers.use.trace_flags import HELP, TraceFlags
from textmill.trainers.use.trace_reports import (
    document_lines,
    find_nothing,
    forgotten_lines,
    report_document,
    report_forgotten,
    report_step,
    report_steps,
    step_lines,
    steps_lines,
)
from textmill.trainers.use.traced_run import digest_of_file, open_traced


def main(argv: list[str]) -> None:
    """Opens the runs and prints a report of each."""
    flags = parse_groups(argv, TraceFlags, HELP)
    find = find_nothing if flags.corpus is None else CorpusTexts(flags.corpus).find
    digest = None if flags.document is None else _parse_document(flags.document)
    forgotten = flags.forgotten
    listed = None if forgotten is None else read_digests(forgotten, "forgotten")
    runs = [open_traced(directory, flags.shards) for directory in flags.run]
    if flags.text is not None:
        digest = digest_of_file(flags.text, runs)
    for run in runs:
        if listed is not None:
            report, lines = report_forgotten(run, listed, find), forgotten_lines
        elif digest is not None:
            report, lines = report_document(run, digest, find), document_lines
        elif flags.step is not None:
            report, lines = report_step(run, flags.step, find), step_lines
        else:
            report = report_steps(run, *flags.range_of_steps(), flags.above, find)
            lines = steps_lines
        if flags.json:
            say(json.dumps(report))
        else:
            say("\n".join(lines(report, flags.most)))


def _parse_document(text: str) -> bytes:
    try:
        return parse_digest(text)
    except ValueError as error:
        remedy = "give the 32 hexadecimal digits of `id` in a corpus"
        raise FieldError("document", text, remedy) from error


if __name__ == "__main__":
    run_entry(main)
