"""What build_shards prints when it is done: what became of the documents, and what to do next."""

import shlex

from rich.filesize import decimal
from rich.table import Table

from pipelines.build.plan import Plan, plan_table, warnings
from pipelines.build.warnings import set_warnings
from pipelines.encoding.tokenizer import LoadedTokenizer
from pipelines.host.console import Console
from pipelines.inspection.set_tables import funnel_table, labels_table
from pipelines.tasks.task import task_class
from schemas.drops import FILTERED, REFUSED, describe_dropped
from schemas.sidecar import SetInfo


def print_plan(plan: Plan, console: Console) -> None:
    """Prints the plan of a run, and what would go wrong."""
    console.print(plan_table(plan))
    for warning in warnings(plan):
        console.print(f"warning: {warning}", style="yellow")


def print_summary(
    info: SetInfo, tokenizer: LoadedTokenizer, console: Console, *, seconds: float | None = None
) -> None:
    """Prints what a set holds, what to know of it, and the commands that go on with it.

    Args:
      info: the finished set.
      tokenizer: its own.
      console: to print on.
      seconds: that making it took; None for one that was found.
    """
    table = Table(show_header=False)
    for name, value in _facts(info, seconds).items():
        table.add_row(name, value)
    console.print(table)
    if info.stats.funnel and info.stats.funnel.removed:
        console.print("", funnel_table(info.stats.funnel), "")
    if info.stats.total().labels:
        console.print("", labels_table(info.stats), "")
    for warning in set_warnings(info, tokenizer):
        console.print(f"warning: {warning}", style="yellow")
    directory = shlex.quote(info.directory)
    console.print(f"look at it: python -m pipelines.inspect_shards {directory} --row=0")
    if trainer := task_class(info.schema.task).trainer:
        console.print(f"train on it: python -m trainers.{trainer} --shards={directory}")


def _facts(info: SetInfo, seconds: float | None) -> dict[str, str]:
    """The lines of the summary, by their heads."""
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
    facts = {
        "documents": f"{statistics.documents_read:,} read, {total.documents:,} kept",
        **_dropped(info),
        "tokens": f"{total.tokens:,} {moved}= all in {holder}"
        + f", {total.trained:,} trained on" * (total.trained > 0),
        "splits" if info.schema.holds_documents else "rows": ", ".join(
            f"{split} {statistics.split(split).rows:,}" for split in splits
        ),
    }
    if length:
        facts["density"] = f"{total.density(length):.2%} of the places in rows of {length}"
    if seconds is not None:
        rate = statistics.source_bytes / seconds / 1e6
        facts["took"] = f"{seconds:.1f} s, {rate:.1f} MB of text a second"
    size = decimal(sum(file.bytes for file in info.manifest.files))
    return facts | {"lies in": f"{info.directory} ({size})"}


def _dropped(info: SetInfo) -> dict[str, str]:
    """What was left out, a line a kind; what was looked for has one where nothing was found too."""
    dropped, asked = info.stats.all_dropped(), info.schema.parameters
    always = ["duplicates", FILTERED, REFUSED]
    always += ["near duplicates"] * any(name.startswith("near_duplicates") for name in asked)
    facts = describe_dropped(dropped, always)
    if "decontaminate_sha256" in asked and not any("contaminated" in name for name in dropped):
        facts["contaminated"] = "none"
    return facts
