"""Prints the plan of build_corpus, and the summary of a corpus."""

import shlex
from collections.abc import Iterable

from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from textmill.pipelines.corpus.filters import sort_reasons
from textmill.pipelines.corpus.plan import CorpusPlan
from textmill.pipelines.readers.http_body import BODY_CUT, RESPONSES
from textmill.pipelines.readers.page_hosts import PAGES, SHORT_PAGES, WEB_PAGES
from textmill.pipelines.readers.sources import describe_documents
from textmill.pipelines.runners.console import columns_table, facts_table
from textmill.pipelines.runners.result import Result, Say
from textmill.schemas.commands.terminal import command_name, number_of, visible
from textmill.schemas.errors import Caution, flag
from textmill.schemas.files.finished import Corpus, kind_of
from textmill.schemas.format.drops import (
    REJECTED,
    Drop,
    Funnel,
    describe_dropped,
    drop_of,
    sizes,
    spaced,
)

_GREEDY = 0.5  # share of documents above which the plan warns of a rule


def print_plan(plan: CorpusPlan, say: Say) -> None:
    """Prints the estimate of a run, and reasons why it may fail, be slow or keep little."""
    say(facts_table(plan_facts(plan), title="plan (nothing was written)"))
    _print_warnings(plan_warnings(plan), say)


def print_result(result: Result[Corpus], say: Say) -> None:
    """Prints warnings, the counts of a corpus, what a document was, and the next commands."""
    corpus = result.thing
    directory = shlex.quote(corpus.directory)
    if result.seconds is None:
        say(
            f"{corpus.directory} already holds this corpus (fingerprint "
            f"{corpus.schema.fingerprint[:12]}): nothing to do"
        )
    _print_warnings(result.warnings, say)
    say(facts_table(_facts(result)))
    if corpus.stats.funnel.removed:
        say("", funnel_table(corpus.stats.funnel), "")
    if not corpus.stats.total().documents:
        return
    say(
        f"train a tokenizer: {command_name('pipelines.train_tokenizer')} "
        f"{flag('input', directory)} ..."
    )
    say(f"make shards: {command_name('pipelines.build_shards')} {flag('input', directory)} ...")


def _print_warnings(warnings: Iterable[Caution], say: Say) -> None:
    for warning in warnings:
        say(Text(warning.line, "yellow"))


def plan_facts(plan: CorpusPlan) -> dict[str, str]:
    """The lines of the plan, by their titles."""
    needs, on = plan.plan.needs, plan.plan.on
    about = "" if needs.whole else "about "
    given = sum(plan.dropped.values()) + plan.kept
    share = plan.kept_bytes / max(needs.text_bytes, 1)

    def number(count: float) -> str:
        return f"{round(count) if needs.whole else int(float(f'{count:.3g}')):,}"

    def write(drop: Drop, count: float) -> str:
        # A sample has few of the duplicates.
        least = about and drop.name in ("duplicates", "near_duplicates")
        return ("at least " if least else about) + number(count)

    unit, older = describe_documents(on.blocks, on.source), len(plan.schema.ancestors)
    kept = f"{about}{number(plan.kept)} of {about}{number(given)}, {share:.0%} of the bytes read"
    return {
        "inputs": plan.plan.inputs(),
        "text": f"{about}{decimal(int(needs.text_bytes))}",
        "documents": "; ".join(filter(None, (about + number(plan.documents), unit))),
        **describe_dropped(plan.dropped, ("duplicates",), write),
        "kept": f"{kept}: {about}{decimal(int(plan.kept_bytes))}",
        **(plan.near.facts() if plan.near else {}),
        **({"against": number_of(older, "older corpus", "older corpora")} if older else {}),
        "files": f"{plan.schema.files:,} ({plan.schema.file_format}), of "
        f"{about}{decimal(int(plan.kept_bytes / plan.schema.files))} of text each",
        **plan.plan.facts(),
        "columns": ", ".join(plan.schema.columns),
        "fingerprint": plan.schema.fingerprint,
        "output holds": "a corpus: the run checks whether it is this one"
        if kind_of(plan.plan.output) is Corpus
        else "no corpus: the run builds it",
    }


def plan_warnings(plan: CorpusPlan) -> list[Caution]:
    """Reasons why the run may fail, be slow or keep little, a line each."""
    lines = list(plan.plan.warnings())
    for reason, count in sorted(plan.dropped.items(), key=lambda item: -item[1]):
        if count > _GREEDY * plan.documents and drop_of(reason).title != "duplicates":
            lines.append(
                Caution(
                    f"{reason} drops {count / plan.documents:.0%} of the documents of the sample: "
                    f"check this rule, or the field that holds the text ({flag('text_field')})"
                )
            )
    return lines


def _facts(result: Result[Corpus]) -> dict[str, str]:
    """The counts of a corpus, by their titles."""
    corpus, seconds = result.thing, result.seconds
    stats, total = corpus.stats, corpus.stats.total()
    size = sum(file.bytes for file in corpus.documents)
    # Filtered and deduplicated documents are in the table below.
    bad = {n: count for n, count in stats.dropped.items() if n not in stats.funnel.removed}
    counts = f"{stats.documents_read:,} read, {total.documents:,} kept"
    facts = {
        "documents": "; ".join(filter(None, (counts, result.documents))),
        **describe_dropped(bad, (REJECTED,)),
        "text": f"{decimal(total.text_bytes)}, {total.words:,} words",
        "size": f"{decimal(size)} in {number_of(len(corpus.documents), 'file')} of documents",
    }
    if cut := stats.observed.get(RESPONSES, {}).get(BODY_CUT):
        facts["cut pages"] = f"{cut:,}, whose stored bodies are cut or damaged and end early"
    web = stats.observed.get(WEB_PAGES, {})
    if short := web.get(SHORT_PAGES):
        facts["short main texts"] = (
            f"{short:,} of {number_of(web[PAGES], 'web page')}, below a tenth of the visible text"
        )
    if seconds is not None:
        facts["time"] = f"{seconds:.1f} s"
    return facts | {"corpus": corpus.directory}


def funnel_table(funnel: Funnel) -> Table:
    """The table of removed documents, by reason, with the share of all text that was read."""
    own = columns_table("reason", "documents", "bytes", "words", "of all text", justify="right")
    for reason in sort_reasons(funnel.removed):
        counts = sizes(funnel.removed[reason])
        share = counts["text_bytes"] / max(funnel.text_bytes, 1)
        own.add_row(
            Text(visible(spaced(reason))), *(f"{n:,}" for n in counts.values()), f"{share:.2%}"
        )
    if funnel.edited_bytes:
        share = funnel.edited_bytes / max(funnel.text_bytes, 1)
        own.add_row("edits", "", f"{funnel.edited_bytes:,}", "", f"{share:.2%}")
    return own
