"""Refuses options before train_tokenizer reads text, and warns of its result."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from textmill.pipelines.encoding.automaton import UnsupportedPattern, compile_pattern
from textmill.pipelines.encoding.patterns import name_of
from textmill.pipelines.runtime.imports import pc
from textmill.pipelines.tasks.chat_template import read_chat_template
from textmill.pipelines.tasks.chat_turns import find_turn_ends
from textmill.pipelines.tokenizer.histogram import Histogram
from textmill.pipelines.tokenizer.options import TokenizerOptions
from textmill.pipelines.tokenizer.uncompiled_patterns import fault_of
from textmill.schemas.errors import Caution, FieldError, UsageError, flag
from textmill.schemas.tokenizers.chat_template import ChatTemplate

_MANY_RETURNS = 0.005  # share of all words


def refuse_unusable(options: TokenizerOptions) -> None:
    """Checks the splitting pattern and the chat template.

    Raises:
      UsageError: one of them cannot be used.
    """
    if fault := _fault_of(options.cutting.pattern):
        raise FieldError("pattern", options.cutting.pattern, fault)
    if options.chat_template:
        read_chat_template(options.chat_template)


def refuse_pattern(pattern: str, path: str) -> None:
    """Raises UsageError if the expression of a histogram cannot cut text."""
    if fault := _fault_of(pattern):
        raise UsageError(f"{path}: its pattern {pattern!r}: {fault}")


def _fault_of(pattern: str) -> str | None:
    return fault_of(pattern) if name_of(pattern) == pattern else None


def notes_on_pattern(pattern: str) -> Iterator[str]:
    """A note if only `tokenizers` can split by this expression."""
    try:
        if name_of(pattern) == pattern:
            compile_pattern(pattern)
    except UnsupportedPattern as error:
        yield (
            f"note: Textmill does not compile this {flag('pattern')} ({error}), so `tokenizers` "
            "splits the words, more slowly"
        )


def warn_of_returns(histogram: Histogram) -> Iterator[Caution]:
    """A warning if Windows line ends become a part of the vocabulary."""
    counts = histogram.counts["count"].to_numpy()
    holds = pc.match_substring(histogram.counts["word"], "\r")
    share = counts[holds.to_numpy()].sum() / max(counts.sum(), 1)
    if share > _MANY_RETURNS:
        yield Caution(
            f"{share:.1%} of all words contain a carriage return, from Windows line ends: "
            "remove them (sed -i 's/\\r$//' FILE) and train again"
        )


def warn_of_endless_turns(
    settings: Mapping[str, Any], specials: Sequence[str]
) -> Iterator[Caution]:
    """A warning if build_shards --task=chat would reject the chat template with these tokens.

    Args:
      settings: of tokenizer_config.json: roles of tokens, and perhaps `chat_template`.
      specials: the special tokens.
    """
    if "chat_template" not in settings:
        return
    roles = {name: token for name, token in settings.items() if name.endswith("_token")}
    try:
        find_turn_ends(ChatTemplate(settings["chat_template"], "the template", roles), specials, "")
    except UsageError as error:
        yield Caution(
            f"build_shards {flag('task', 'chat')} would reject this tokenizer: {error}; or add the "
            f"end of turn to {flag('special_tokens')}"
        )


def warn_of_small_vocabulary(options: TokenizerOptions, vocab_size: int) -> Iterator[Caution]:
    """A warning if the text has no pairs for all tokens that were requested."""
    if vocab_size < options.vocab_size:
        yield Caution(
            f"{vocab_size:,} tokens instead of {options.vocab_size:,}: no other pair "
            f"of tokens occurs {max(1, options.min_frequency)} times; give more text, or a lower "
            f"{flag('vocab_size')}"
        )
