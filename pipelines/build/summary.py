"""The lines that build_shards prints at the end: counts, warnings and the next commands.

Each warning names a defect of the dataset that harms training, and a remedy.
"""

import io
import os
import shlex
from collections.abc import Iterator

import numpy as np
from rich.filesize import decimal

from pipelines.build.plan import Plan, plan_facts, warnings
from pipelines.encoding.tokenizer import LoadedTokenizer
from pipelines.host.tables import facts_table
from pipelines.inspection.set_tables import labels_table
from pipelines.runners.console import Console
from pipelines.storage import store
from pipelines.tasks.task import task_class
from pipelines.writers.token_counts import TOKEN_COUNTS
from schemas.commands.terminal import number_of
from schemas.drops import FILTERED, REJECTED, describe_dropped, drop_of
from schemas.metadata import SetInfo

_RETURNS, _LONG, _RULE = 0.005, 0.05, 0.1  # shares of tokens or documents that warn
_MUCH_TEXT = 1_000_000  # bytes; with less, most of the time goes into starting
_LONG_BIN = 16  # in the histogram of lengths, the first of documents of 32,768 tokens and more


def print_plan(plan: Plan, console: Console) -> None:
    """Prints the plan of a run and warnings."""
    console.print(facts_table(plan_facts(plan), title="plan (nothing was written)"))
    for warning in warnings(plan):
        console.print(f"warning: {warning}", style="yellow")


def print_summary(
    info: SetInfo,
    tokenizer: LoadedTokenizer,
    console: Console,
    *,
    documents: str = "",
    seconds: float | None = None,
) -> None:
    """Prints a finished dataset's counts and warnings, and the next commands.

    Args:
      info: the dataset.
      tokenizer: its tokenizer.
      console: prints.
      documents: how the input was split into documents, from `describe_documents`.
      seconds: the run's time; None if the dataset existed before.
    """
    console.print(facts_table(_facts(info, documents, seconds)))
    if info.stats.total().labels:
        console.print("", labels_table(info.stats), "")
    for warning in set_warnings(info, tokenizer, documents):
        console.print(f"warning: {warning}", style="yellow")
    directory = shlex.quote(info.directory)
    console.print(f"inspect it: python -m pipelines.inspect_shards {directory} --row=0")
    if trainer := task_class(info.schema.task).trainer:
        console.print(f"train on it: python -m trainers.{trainer} --shards={directory}")


def _facts(info: SetInfo, documents: str, seconds: float | None) -> dict[str, str]:
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
    shards = [file.bytes for file in info.manifest.files if file.split]
    others = sum(file.bytes for file in info.manifest.files if not file.split)
    facts["size"] = (
        f"{decimal(sum(shards))} in {number_of(len(shards), 'shard file')}, {decimal(others)} of "
        "metadata files"
    )
    if seconds is not None:
        text = statistics.source_bytes
        rate = f", {text / seconds / 1e6:.1f} MB of text per second" * (text >= _MUCH_TEXT)
        facts["time"] = f"{seconds:.1f} s{rate}"
    return facts | {"output": info.directory}


def set_warnings(info: SetInfo, tokenizer: LoadedTokenizer, documents: str) -> Iterator[str]:
    """Warns of Windows line ends, paragraphs as long as books, empty splits and greedy filters.

    `documents` is as for `print_summary`.

    Raises:
      DataError: a file of the dataset cannot be read.
    """
    total = info.stats.total()
    content = store.read(os.path.join(info.directory, TOKEN_COUNTS))
    counts = np.load(io.BytesIO(content), allow_pickle=False)
    used = np.flatnonzero(counts).tolist()
    returns = [token for token in used if b"\r" in tokenizer.token_bytes[token]]
    share = counts[returns].sum() / max(counts.sum(), 1)
    if share > _RETURNS:
        yield (
            f"{share:.1%} of all tokens contain a carriage return, from Windows line ends: remove "
            "them (sed -i 's/\\r$//' FILE) and build the dataset again"
        )
    books, tokens = (
        sum(bins[_LONG_BIN:]) for bins in (total.length_histogram, total.length_tokens)
    )
    if info.schema.parameters.get("document") == "paragraph" and tokens > _LONG * total.tokens:
        yield (
            f"{number_of(books, 'document')} of 32,768 tokens and more "
            f"{'has' if books == 1 else 'have'} {tokens / total.tokens:.0%} of all tokens: text "
            "without blank lines is one paragraph. Read such files with --document=line or file"
        )
    yield from _empty_splits(info, documents)
    yield from _hungry_filter(info)


def _empty_splits(info: SetInfo, documents: str) -> Iterator[str]:
    total = info.stats.total().documents
    if info.schema.parameters.get("corpus"):  # a corpus fixes what a document is
        smaller = "build the corpus again with --document=paragraph, or "
    else:
        smaller = "use --document=paragraph, or " * documents.endswith("(--document=file)")
    for split, share in info.schema.splits.items():
        if share and not info.stats.split(split).rows:
            yield (
                f"the split {split} is empty: a hash of a document's text chooses its split, and "
                f"{number_of(total, 'document')} {'was' if total == 1 else 'were'} kept; "
                f"{smaller}name the files of each split (--train_input, ...)"
            )


def _hungry_filter(info: SetInfo) -> Iterator[str]:
    read = info.stats.documents_read
    for reason, number in sorted(info.stats.all_dropped().items()):
        if drop_of(reason).title == FILTERED and number > _RULE * read:
            yield (
                f"--filter drops {number / read:.0%} of all documents as {reason}: check what it "
                "drops, and change the function if it drops too much"
            )
