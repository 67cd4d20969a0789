"""All that train_tokenizer prints: the plan, and the finished tokenizer."""

import shlex
from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import Any

from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from textmill.pipelines.encoding.tokenizer_files import COMMON_SPECIALS
from textmill.pipelines.readers.sources import describe_documents
from textmill.pipelines.runners.console import facts_table
from textmill.pipelines.runners.result import Result
from textmill.pipelines.tokenizer.options import TextFlags
from textmill.pipelines.tokenizer.plan import TokenizerPlan
from textmill.schemas.commands.terminal import command_name, number_of
from textmill.schemas.errors import Caution, flag
from textmill.schemas.files.finished import TokenizerInfo
from textmill.schemas.format.drops import REJECTED, describe_dropped
from textmill.schemas.format.tokenizer_report import Fertility, TokenizerReport

_SHARED = ("document", "text_field", "input_format", "max_document_bytes", "filter")
_LISTED = 20  # groups


def print_plan(plan: TokenizerPlan, say: Callable[[Any], None]) -> None:
    """Prints what a run would take."""
    say(facts_table(plan_facts(plan), title="plan (nothing was written)"))
    _print_warnings(plan.plan.warnings(), say)


def plan_facts(plan: TokenizerPlan) -> dict[str, str]:
    """The lines of a plan, by their titles."""
    needs, on, options = plan.plan.needs, plan.plan.on, plan.options
    about = "" if needs.whole else "about "

    def number(count: float) -> str:
        return f"{about}{round(count) if needs.whole else int(float(f'{count:.3g}')):,}"

    unit = describe_documents(on.blocks, on.source)
    return {
        "inputs": plan.plan.inputs(),
        "text": f"{about}{decimal(int(needs.text_bytes))}",
        "documents": "; ".join(filter(None, (number(plan.documents), unit))),
        "words": f"{number(plan.words)}, {number(plan.distinct)} distinct",
        "vocabulary": f"{options.vocab_size:,} tokens ({options.model})",
        **plan.plan.facts(),
    }


def print_result(result: Result[TokenizerInfo], say: Callable[[Any], None]) -> None:
    """Prints the counts of a tokenizer, its fertility, warnings, and the next command."""
    directory, report = result.thing.directory, result.thing.report
    if result.seconds is None:
        say(f"{directory} already contains this tokenizer: nothing to do")
    facts = _report_facts(report, result.documents)
    if result.seconds is not None:
        facts["time"] = f"{result.seconds:.1f} s"
    say(facts_table(facts | {"output": directory}))
    if report.fertility:
        say(fertility_table(report.fertility))
    _print_warnings(result.warnings, say)
    say(f"next, build a dataset: {_next_command(result)}")


def _print_warnings(warnings: Iterable[Caution], say: Callable[[Any], None]) -> None:
    for warning in warnings:
        say(Text(warning.line, style="yellow"))


def _report_facts(report: TokenizerReport, documents: str) -> dict[str, str]:
    """The lines of report.json, by their titles; `documents` describes what a document was."""
    text = report.text
    counts = f"{number_of(text.documents, 'document')}, {decimal(text.bytes)}"
    return {
        "text": "; ".join(filter(None, (counts, documents))),
        **describe_dropped(text.refused, (REJECTED,)),
        "words": f"{report.words:,}, {report.distinct_words:,} distinct",
        "vocabulary": f"{report.vocab_size:,} tokens, {report.merges:,} merges",
        "coverage": f"{report.words_of_one_token:.1%} of words are one token, "
        f"{report.distinct_words_of_one_token:.1%} of distinct words",
        "bytes per token": f"{report.bytes_per_token:.3f}",
    }


def fertility_table(groups: tuple[Fertility, ...]) -> Table:
    """The metrics of the largest groups as a table; report.json has all groups."""
    table = Table(caption="measured on a sample of each group", caption_justify="left")
    table.add_column("group", overflow="fold")
    for head in (
        "share of\nthe text",
        "tokens\nper word",
        "bytes\nper token",
        "characters\nper token",
        "words of over\n3 tokens",
    ):
        table.add_column(head, justify="right")
    total = sum(group.bytes for group in groups)
    for group in groups[:_LISTED]:
        table.add_row(
            group.group or "(none)",
            f"{group.bytes / max(total, 1):.1%}",
            f"{group.tokens_per_word:.2f}",
            f"{group.bytes_per_token:.2f}",
            f"{group.characters_per_token:.2f}",
            f"{group.words_of_over_3_tokens:.1%}",
        )
    if len(groups) > _LISTED:
        table.add_row(f"and {len(groups) - _LISTED:,} more", *[""] * 5)
    return table


def _next_command(result: Result[TokenizerInfo]) -> str:
    """The build_shards command of a dataset of the text, or of conversations for a template."""
    given, directory = result.thing.report.parameters, result.thing.directory
    words = [command_name("pipelines.build_shards")]
    if "chat_template" in given:
        words += [flag("task", "chat"), flag("input", "CONVERSATIONS")]
    else:
        has_mask = {*COMMON_SPECIALS["mask"]} & {*given["special_tokens"]}
        words.append(flag("task", "mlm" if has_mask else "clm"))
        words += [flag("input", shlex.quote(pattern)) for pattern in result.inputs or ("TEXT",)]
        for field in fields(TextFlags):  # the dataset must read the text in the same way
            value = given.get(field.name, field.default)
            if field.name in _SHARED and value != field.default:
                words.append(flag(field.name, shlex.quote(str(value))))
    return " ".join([*words, flag("tokenizer", shlex.quote(directory)), flag("output", "SHARDS")])
