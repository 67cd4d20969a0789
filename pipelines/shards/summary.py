"""All that build_shards prints: the plan of --dry_run, and the summary of a dataset."""

import shlex
from collections.abc import Callable

from rich.filesize import decimal

from textmill.pipelines.inspection.set_tables import labels_table
from textmill.pipelines.runners.console import facts_table
from textmill.pipelines.runners.result import Result
from textmill.pipelines.shards.plan import BuildPlan
from textmill.pipelines.tasks.task import task_class
from textmill.schemas.commands.terminal import command_name, number_of
from textmill.schemas.errors import flag
from textmill.schemas.files.finished import DatasetInfo
from textmill.schemas.format.drops import REJECTED, Drop, describe_dropped

_MUCH_TEXT = 1_000_000  # bytes; with less, most of the time goes into starting


def print_plan(plan: BuildPlan, say: Callable[..., None]) -> None:
    """Prints the plan of a run, and its warnings.

    Args:
      plan: of the run.
      say: prints, such as `Console().print`.
    """
    say(facts_table(plan_facts(plan), title="plan (nothing was written)"))
    for warning in plan.warnings():
        say(warning.line, style="yellow")


def print_result(result: Result[DatasetInfo], say: Callable[..., None]) -> None:
    """Prints a finished dataset's counts and warnings, and the next commands.

    Args:
      result: of the run.
      say: prints, such as `Console().print`.
    """
    info = result.thing
    if result.seconds is None:
        say(
            f"{info.directory} already contains this dataset (fingerprint "
            f"{info.schema.fingerprint[:12]}): nothing to do"
        )
    say(facts_table(_facts(info, result.documents, result.seconds)))
    if info.stats.total().labels:
        say("", labels_table(info.stats), "")
    for warning in result.warnings:
        say(warning.line, style="yellow")
    directory = shlex.quote(info.directory)
    say(f"inspect it: {command_name('pipelines.inspect_shards')} {directory} {flag('row', 0)}")
    if trainer := task_class(info.schema.task).trainer:
        say(f"train on it: {command_name(f'trainers.{trainer}')} {flag('shards', directory)}")


def _facts(info: DatasetInfo, documents: str, seconds: float | None) -> dict[str, str]:
    """The lines of the summary, by their titles."""
    statistics, total = info.stats, info.stats.total()
    moved = "".join(
        f"{sign} {number:,} {what} "
        for sign, number, what in (
            ("+", total.specials_added, "special"),
            ("+", total.tokens_repeated, "repeated"),
            ("-", total.tokens_truncated, "truncated"),
        )
        if number
    )
    length, splits = info.schema.row_tokens, sorted(info.schema.splits)
    holder = "documents" if info.schema.holds_documents else "rows"
    counts = f"{statistics.documents_read:,} read, {total.documents:,} kept"
    facts = {
        "documents": "; ".join(filter(None, (counts, documents))),
        **describe_dropped(info.stats.all_dropped(), ("duplicates", REJECTED)),
        "tokens": f"{total.tokens:,} {moved}= all in {holder}"
        + f", {total.trained:,} trained on" * (total.trained > 0),
        "splits" if info.schema.holds_documents else "rows": ", ".join(
            f"{split} {statistics.split(split).rows:,}" for split in splits
        ),
    }
    if length:
        facts["packing efficiency"] = (
            f"{total.packing_efficiency(length):.2%} of positions in rows of {length}"
        )
    shards = [file.bytes for file in info.manifest.files if file.is_shard]
    others = sum(file.bytes for file in info.manifest.files if not file.is_shard)
    facts["size"] = (
        f"{decimal(sum(shards))} in {number_of(len(shards), 'shard file')}, {decimal(others)} of "
        "metadata files"
    )
    if seconds is not None:
        text = statistics.source_bytes
        rate = f", {decimal(int(text / seconds))} of text per second" * (text >= _MUCH_TEXT)
        facts["time"] = f"{seconds:.1f} s{rate}"
    return facts | {"output": info.directory}


def plan_facts(plan: BuildPlan) -> dict[str, str]:
    """The lines of the plan, by their titles."""
    estimate, run, schema = plan.estimate, plan.run, plan.run.schema
    about = "" if estimate.whole else "about "

    def number(value: float) -> str:
        # Three digits of an estimate, 74,045.3 -> 74,000, and all of an exact count.
        return f"{round(value) if estimate.whole else int(float(f'{value:.3g}')):,}"

    def write(drop: Drop, count: float) -> str:
        # A sample has few of the exact duplicates.
        return ("at least " if about and drop.by_shard else about) + number(count)

    rows = ", ".join(f"{split} {about}{number(n)}" for split, n in sorted(estimate.rows.items()))
    if schema.holds_documents:
        rows += "; a row is a document"
    else:
        length = schema.row_tokens
        efficiency = estimate.tokens_in_rows / max(sum(estimate.rows.values()) * length, 1)
        rows += f"; {length} tokens each, packing efficiency {efficiency:.1%}"
        rows += f", {schema.codec().stride} bytes"
    needs = plan.needs()
    return {
        "inputs": needs.inputs(),
        "text": f"{about}{decimal(int(estimate.text_bytes))}",
        "documents": "; ".join(filter(None, (about + number(estimate.documents), run.documents))),
        **describe_dropped(estimate.dropped, ("duplicates",), write),
        "tokens": f"{about}{number(estimate.tokens)} + {number(estimate.specials)} special",
        "rows": rows,
        "shards": ", ".join(f"{split} {count:,}" for split, count in schema.shards.items()),
        **needs.facts(),
        "task": f"{schema.task}, packing {schema.packing}",
        "features": ", ".join(f"{f.name} {f.dtype}{list(f.shape)}" for f in schema.features),
        "tokenizer": f"{schema.vocab_size:,} ids, sha256 {schema.tokenizer_sha256[:12]}; "
        f"backend {run.load_encoder()}",
        "fingerprint": schema.fingerprint,
        "output holds": plan.output_state(),
    }
