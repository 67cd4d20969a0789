"""Entry: which documents a step of a run trained on, and which steps trained on a document.

    python -m trainers.trace RUN --step=500 --corpus=corpus
    python -m trainers.trace RUN --steps=480:520 --above=4.0
    python -m trainers.trace RUN RUN --document=4f2a... --json
    python -m trainers.trace RUN --text=page.txt

RUN is the directory of a run, finished or not.
"""

from __future__ import annotations

import json

from textmill.schemas.commands.entry import run_entry
from textmill.schemas.commands.terminal import say
from textmill.trainers.flags.command_line import parse_groups
from textmill.trainers.use.corpus_texts import CorpusTexts
from textmill.trainers.use.trace_flags import HELP, TraceFlags
from textmill.trainers.use.trace_reports import (
    document_lines,
    find_nothing,
    report_document,
    report_step,
    report_steps,
    step_lines,
    steps_lines,
)
from textmill.trainers.use.traced_run import digest_of_file, open_traced, parse_digest


def main(argv: list[str]) -> None:
    """Opens the runs and prints a report of each."""
    flags = parse_groups(argv, TraceFlags, HELP)
    find = find_nothing if flags.corpus is None else CorpusTexts(flags.corpus).find
    digest = parse_digest(flags.document) if flags.document is not None else None
    runs = [open_traced(directory, flags.shards) for directory in flags.run]
    if flags.text is not None:
        digest = digest_of_file(flags.text, runs)
    for run in runs:
        if digest is not None:
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


if __name__ == "__main__":
    run_entry(main)
