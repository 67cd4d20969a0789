"""Warns of rules that remove more than half of what reaches them. Pure."""

from textmill.pipelines.corpus.filters import Filters, sort_reasons
from textmill.pipelines.corpus.rules.rule import RuleGroup
from textmill.pipelines.readers.forget import REASON
from textmill.schemas.errors import Caution
from textmill.schemas.format.drops import Funnel, Observed, Removed

_FEWEST = 20  # documents; with fewer, no share is worth a warning


def warn_of(funnel: Funnel, observed: Observed) -> list[Caution]:
    """Warnings about rules that remove more than half of what reaches them, with likely causes.

    Half of the documents or of the text. A rule of a paper is compared with what reaches the
    paper's rules, since a document counts under the first of them that it fails.

    ["gopher:min_words drops 912 of the 1,000 documents that reach gopher's rules: ..."]

    Args:
      funnel: documents that went into the rules, and those removed, by reason.
      observed: further counts of rules, with `edited_bytes` of those that edit.
    """
    warnings = []
    gone = funnel.removed.get(REASON, Removed())
    documents = funnel.documents - gone.documents
    text_bytes = funnel.text_bytes - gone.text_bytes
    for row, group in Filters().groups():
        removed = {
            reason: one
            for reason, one in funnel.removed.items()
            if reason in group.REASONS or reason.startswith(f"{row}:")
        }
        edited = observed.get("edited_bytes", {})
        taken = sum(one.text_bytes for one in removed.values())
        taken += sum(edited.get(name, 0) for name in (row, *group.REASONS))
        dropped, reach = [], Removed(documents, text_bytes)
        for reason in sort_reasons(removed):
            one, is_of_paper = removed[reason], reason not in group.REASONS
            if reach.documents >= _FEWEST and (what := _most(one, reach, "" not in group.CAUSES)):
                place = f"{row}'s rules" if is_of_paper else "it"
                cause = _cause(group, reason.removeprefix(f"{row}:"))
                dropped.append(Caution(f"{reason} drops {what} that reach {place}{cause}"))
            if not is_of_paper:  # rules of their own, one after another
                left = reach.documents - one.documents, reach.text_bytes - one.text_bytes
                reach = Removed(*left)
        warnings += dropped
        if not dropped and "" in group.CAUSES and taken * 2 > text_bytes and documents >= _FEWEST:
            share = f"{taken / text_bytes:.0%}"
            most = max(removed, key=lambda reason: removed[reason].text_bytes, default="")
            if not most or removed[most].text_bytes * 2 <= taken:
                most = ""  # no reason alone: lines that were cut, or several
            warnings.append(
                Caution(
                    f"{row} removes {share} of the text that reaches it"
                    + (f", most of it by {most}" if most else "")
                    + _cause(group, most.removeprefix(f"{row}:"))
                )
            )
        documents -= sum(one.documents for one in removed.values())
        text_bytes -= taken
    return warnings


def _most(one: Removed, reach: Removed, by_text: bool) -> str:
    """`51 of the 100 documents`, if a rule removed more than half of what reached it; else ""."""
    if one.documents * 2 > reach.documents:
        return f"{one.documents:,} of the {reach.documents:,} documents"
    if by_text and one.text_bytes * 2 > reach.text_bytes:
        return f"{one.text_bytes / reach.text_bytes:.0%} of the text of the documents"
    return ""


def _cause(group: RuleGroup, reason: str) -> str:
    return f": {group.CAUSES[reason]}" if reason in group.CAUSES else ""
