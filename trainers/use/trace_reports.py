"""The reports of trace, as values for JSON and as lines."""

from __future__ import annotations

from typing import Any, Callable, Iterable, Iterator, Mapping, Sequence
from urllib.parse import urlsplit

from textmill.schemas.commands.terminal import number_of
from textmill.schemas.errors import DataError, UsageError, flag
from textmill.schemas.format.digests import Digests
from textmill.trainers.data.sightings import SeenSegment, Sighting, tokens_of_documents
from textmill.trainers.use.traced_run import TracedRun

Report = Mapping[str, Any]
Find = Callable[[Iterable[bytes]], Mapping[bytes, Mapping[str, Any]]]
_WIDTH = 72  # of a text's beginning


def find_nothing(digests: Iterable[bytes]) -> Mapping[bytes, Mapping[str, Any]]:
    """No field of any document: there is no corpus."""
    return {}


def report_step(run: TracedRun, step: int, find: Find) -> Report:
    """The rows and documents of a step; `find` gives fields of documents from a corpus."""
    rows = run.rows(step)
    segments = run.segments(rows)
    tokens = tokens_of_documents(segments)
    whole, fields = sum(tokens.values()), find(tokens)
    return {
        "run": str(run.directory),
        "step": step,
        "loss": next(iter(run.losses(step, step).values()), None),
        "tokens": whole,
        "rows": [
            {**_row(run, row), "documents": [_segment(one) for one in own]}
            for row, own in _by_row(rows, segments)
        ],
        "documents": [
            {
                "document": digest.hex(),
                "tokens": count,
                "share": count / max(whole, 1),
                **fields.get(digest, {}),
            }
            for digest, count in tokens.items()
        ],
    }


def report_steps(run: TracedRun, first: int, last: int, above: float | None, find: Find) -> Report:
    """The documents of the steps with a loss above a limit, beside their share of the others.

    Raises:
      UsageError: no step has such a loss.
      DataError: the run's metrics lack a step.
    """
    run.check_step(first)
    run.check_step(last)
    losses = run.losses(first, last)
    if missing := [step for step in range(first, last + 1) if step not in losses]:
        raise DataError(f"the metrics of {run.directory} have no loss of step {missing[0]:,}")
    taken = [step for step, loss in losses.items() if above is None or loss > above]
    if not taken:
        worst = max(losses, key=lambda step: losses[step])
        raise UsageError(
            f"{flag('above', above)}: no step from {first:,} to {last:,} of {run.directory} has "
            f"such a loss; the highest is {losses[worst]:.4g}, of step {worst:,}"
        )
    kinds: tuple[dict[str, dict[str, int]], ...] = ({}, {})
    others = [step for step in losses if step not in {*taken}]
    counts: tuple[dict[bytes, int], ...] = ({}, {})
    for into, steps, kind in zip(counts, (taken, others), kinds):
        for step in steps:
            rows = run.rows(step)
            for one in run.segments(rows):
                into[one.digest] = into.get(one.digest, 0) + one.tokens
                dataset = run.set_of(rows[one.position].row_index)[0]
                if dataset:
                    _count(kind, "datasets", dataset, one.tokens)
    fields = find({*counts[0], *counts[1]})
    for into, kind in zip(counts, kinds):
        for digest, tokens in into.items() if fields else ():
            _count(kind, "sources", source_of(fields.get(digest, {})), tokens)
    shares = _compare(*counts)
    return {
        "run": str(run.directory),
        "steps": [{"step": step, "loss": losses[step]} for step in taken],
        "tokens": sum(counts[0].values()),
        "other_steps": len(others),
        **{
            name: [{"name": key, **values} for key, values in _compare(*both).items()]
            for name in ("datasets", "sources")
            if any(both := [kind.get(name, {}) for kind in kinds])
        },
        "documents": [
            {"document": digest.hex(), **values, **fields.get(digest, {})}
            for digest, values in shares.items()
            if values["tokens"]
        ],
    }


def report_document(run: TracedRun, digest: bytes, find: Find) -> Report:
    """The steps that trained on a document, each between two checkpoints."""
    seen = run.sightings(digest)
    steps: dict[int, list[Sighting]] = {}
    for one in seen:
        steps.setdefault(one.step + 1, []).append(one)

    def step_of(step: int, rows: Sequence[Sighting]) -> Report:
        before, after = run.around(step)
        return {
            "step": step,
            "rows": [_row(run, row) for row in rows],
            "checkpoint_before": before,
            "checkpoint_after": after,
        }

    return {
        "run": str(run.directory),
        "document": digest.hex(),
        "in_dataset": bool(seen) or run.has(digest),
        "steps_done": run.steps,
        "times": len(seen),
        "steps": [step_of(step, rows) for step, rows in steps.items()],
        **find([digest]).get(digest, {}),
    }


def report_forgotten(run: TracedRun, listed: Digests, find: Find) -> Report:
    """The steps that trained on listed documents, and the checkpoints around the first of them."""
    seen = run.sightings_of(listed)
    steps_of = {digest: sorted({one.step + 1 for one in own}) for digest, own in seen.items()}
    steps, fields = sorted(set().union(*steps_of.values())), find(seen)
    return {
        "run": str(run.directory),
        "listed": len(listed),
        "in_dataset": len(seen),
        "seen": sum(map(bool, seen.values())),
        "steps_done": run.steps,
        **_span(run, steps),
        "documents": [
            {
                "document": digest.hex(),
                "times": len(own),
                **_span(run, steps_of[digest]),
                **fields.get(digest, {}),
            }
            for digest, own in seen.items()
        ],
    }


def _span(run: TracedRun, steps: Sequence[int]) -> Report:
    """Some steps, ascending, and the checkpoints around the first of them."""
    before, after = run.around(steps[0]) if steps else (None, None)
    return {
        "steps": steps,
        "first_step": steps[0] if steps else None,
        "last_step": steps[-1] if steps else None,
        "checkpoint_before": before,
        "checkpoint_after": after,
    }


def step_lines(report: Report, most: int) -> Iterator[str]:
    """The report of a step as text."""
    loss = report["loss"]
    yield (
        f"step {report['step']:,} of {report['run']}: {number_of(len(report['rows']), 'row')}, "
        f"{number_of(len(report['documents']), 'document')}, {report['tokens']:,} tokens"
        + ("" if loss is None else f", loss {loss:.4g}")
    )
    yield from _document_lines(report["documents"], ("share",), most)
    rows = [f"{_place(row)} (epoch {row['epoch']})" for row in report["rows"][:most]]
    more = len(report["rows"]) - len(rows)
    yield f"rows: {', '.join(rows)}{f' and {more:,} more' if more else ''}"


def steps_lines(report: Report, most: int) -> Iterator[str]:
    """The report of several steps as text."""
    steps, others = report["steps"], report["other_steps"]
    worst = max(steps, key=lambda one: one["loss"])
    yield (
        f"{number_of(len(steps), 'step')} of {report['run']}, highest loss {worst['loss']:.4g} in "
        f"step {worst['step']:,}: {number_of(len(report['documents']), 'document')}, "
        f"{report['tokens']:,} tokens; compared with {number_of(others, 'other step')}"
    )
    listed = ", ".join(f"{one['step']:,} ({one['loss']:.4g})" for one in steps[:most])
    more = len(steps) - most
    yield f"steps: {listed}{f' and {more:,} more' if more > 0 else ''}"
    for name in ("datasets", "sources"):
        for one in report.get(name, ())[:most]:
            yield f"  {one['share']:8.2%}  {one['share_elsewhere']:8.2%}  {name[:-1]} {one['name']}"
    yield from _document_lines(report["documents"], ("share", "share_elsewhere"), most)


def document_lines(report: Report, most: int) -> Iterator[str]:
    """The report of a document as text."""
    where, steps = f"document {report['document']} in {report['run']}", report["steps"]
    if not report["in_dataset"]:
        yield f"{where}: the run's training split does not have it"
        return
    done = f"the {report['steps_done']:,} steps done"
    if not steps:
        yield f"{where}: not seen in {done}"
        return
    yield (
        f"{where}: in {number_of(report['times'], 'row')} of {number_of(len(steps), 'step')}, of "
        f"{done}"
    )
    about = _about(report)
    if about:
        yield f"  {about}"
    for one in steps[:most]:
        rows = ", ".join(f"row {_place(row)} (epoch {row['epoch']})" for row in one["rows"])
        yield f"  step {one['step']:,}: {rows}; {_between(one)}"
    if len(steps) > most:
        yield f"  and {number_of(len(steps) - most, 'more step', 'more steps')}"


def forgotten_lines(report: Report, most: int) -> Iterator[str]:
    """The report of listed documents as text."""
    listed = number_of(report["listed"], "listed document")
    where = f"{report['in_dataset']:,} in the training split of {report['run']}"
    done = f"the {report['steps_done']:,} steps done"
    if not report["seen"]:
        yield f"{listed}, {where}, none seen in {done}"
        return
    yield (
        f"{listed}, {where}, {report['seen']:,} seen in {len(report['steps']):,} of "
        f"{done}, first in step {report['first_step']:,}, last in step {report['last_step']:,}"
    )
    yield f"the first step is {_between(report)}"
    seen = [one for one in report["documents"] if one["times"]]
    for one in seen[:most]:
        yield (
            f"  {one['document']}: {number_of(one['times'], 'row')} of "
            f"{number_of(len(one['steps']), 'step')}, {one['first_step']:,} to "
            f"{one['last_step']:,}; first {_between(one)}  {_about(one)}".rstrip()
        )
    if len(seen) > most:
        yield f"  and {number_of(len(seen) - most, 'more document', 'more documents')}"


def source_of(fields: Mapping[str, Any]) -> str:
    """Where a document comes from: its `source`, the host of its `url`, or its file."""
    if not fields:
        return "not in the corpus"
    host = urlsplit(str(fields.get("url") or "")).hostname
    return str(fields.get("source") or host or fields.get("file") or "unknown")


def _document_lines(
    documents: Sequence[Mapping[str, Any]], shares: Sequence[str], most: int
) -> Iterator[str]:
    heads = {"share": "share", "share_elsewhere": "elsewhere"}
    yield f"  {'  '.join(f'{heads[name]:>9}' for name in shares)}  {'tokens':>7}  document"
    for one in documents[:most]:
        numbers = "  ".join(f"{one[name]:9.2%}" for name in shares)
        yield f"  {numbers}  {one['tokens']:7,}  {one['document']}  {_about(one)}".rstrip()
    if len(documents) > most:
        yield f"  and {number_of(len(documents) - most, 'more document', 'more documents')}"


def _about(fields: Mapping[str, Any]) -> str:
    """The address and the beginning of a document: "example.org/a  Once upon a time"."""
    place = fields.get("url") or fields.get("source") or fields.get("file") or ""
    text = " ".join(str(fields.get("text", ""))[: 4 * _WIDTH].split())
    short = text if len(text) <= _WIDTH else f"{text[: _WIDTH - 3]}..."
    return "  ".join(part for part in (str(place), short) if part)


def _between(one: Mapping[str, Any]) -> str:
    """The checkpoints around a step."""
    before, after = one["checkpoint_before"], one["checkpoint_after"]
    return (
        f"{f'after checkpoint {before:,}' if before else 'after the start'}, "
        f"{f'before checkpoint {after:,}' if after else 'in no checkpoint yet'}"
    )


def _by_row(
    rows: Sequence[Sighting], segments: Sequence[SeenSegment]
) -> Iterator[tuple[Sighting, list[SeenSegment]]]:
    own: list[list[SeenSegment]] = [[] for _ in rows]
    for one in segments:
        own[one.position].append(one)
    yield from zip(rows, own)


def _row(run: TracedRun, row: Sighting) -> Report:
    name, index = run.set_of(row.row_index)
    return {**({"dataset": name} if name else {}), "row": index, "epoch": row.epoch + 1}


def _place(row: Mapping[str, Any]) -> str:
    return f"{row['dataset']} {row['row']:,}" if "dataset" in row else f"{row['row']:,}"


def _segment(one: SeenSegment) -> Report:
    return {"document": one.digest.hex(), "first": one.first, "tokens": one.tokens}


def _count(kind: dict[str, dict[str, int]], name: str, key: str, tokens: int) -> None:
    counts = kind.setdefault(name, {})
    counts[key] = counts.get(key, 0) + tokens


def _compare(taken: Mapping[Any, int], others: Mapping[Any, int]) -> dict[Any, dict[str, Any]]:
    """The share of each key in two counts of tokens, the largest excess first."""
    whole, rest = max(sum(taken.values()), 1), max(sum(others.values()), 1)
    found = {
        key: {
            "tokens": taken.get(key, 0),
            "share": taken.get(key, 0) / whole,
            "share_elsewhere": others.get(key, 0) / rest,
        }
        for key in {**taken, **others}
    }
    return dict(
        sorted(
            found.items(),
            key=lambda item: (item[1]["share_elsewhere"] - item[1]["share"], item[0]),
        )
    )
