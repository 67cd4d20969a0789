"""--decontaminate: drops documents that contain text of evaluation sets, or cuts that text."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from functools import partial
from hashlib import sha256
from typing import Annotated, Any, Literal, NamedTuple

import tyro

from textmill.pipelines.corpus.rules.rule import Rule, RuleGroup, check_numbers
from textmill.pipelines.readers.corpus_files import find_corpus
from textmill.pipelines.readers.files import HUGGING_FACE, FileFinder, expand_lists
from textmill.pipelines.readers.formats import huggingface
from textmill.schemas.commands.values import join_list, spelled_list, take_values, text_of
from textmill.schemas.errors import FieldError, flag
from textmill.schemas.files import store
from textmill.schemas.format.manifest import MANIFEST

Unit = Literal["document", "paragraph", "line"]
_LONGEST = 64  # words of an n-gram
_FIELDS = spelled_list(str, "FIELD,...", parse=str.strip)


@dataclass(frozen=True)
class Decontamination(RuleGroup):
    """Keep text of evaluation sets out of the corpus."""

    REASONS = ("contaminated",)
    CAUSES = {
        "contaminated": "the input may include the evaluation sets themselves, or their n-grams "
        "are common language: see rejects/contamination.jsonl"
    }

    decontaminate: Annotated[
        tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="PATH")
    ] = ()
    """Drop documents that contain text of these files or Textmill datasets. Files are named as for
    --input; all splits of a dataset but train count. Repeatable."""
    decontaminate_fields: Annotated[tuple[str, ...], _FIELDS] = ()
    """Fields of the files with text, separated by commas: question,answer. Each field is a text of
    its own. Default: question for SQuAD's JSON and for datasets of --task=qa, otherwise text."""
    decontaminate_ngram: int = 13
    """Number of consecutive words that must be equal, whatever their case and punctuation. A
    shorter text must be contained as a whole."""
    decontaminate_min_words: int = 5
    """Minimum number of words of a text to search for. Shorter texts occur by chance."""
    decontaminate_share: float = 0.0
    """Minimum share of a text's n-grams that a document must contain; 0 for any one n-gram."""
    decontaminate_max_documents: int = 10
    """Ignore n-grams in more documents of the input than this, as common language. A text without
    others is searched for as a whole, unless its words are few or short. 0 counts all n-grams and
    saves reading the input a second time."""
    decontaminate_unit: Unit = "document"
    """Unit to drop: the document, the paragraph (between blank lines) or the line with the text. A
    document with no other unit is dropped."""

    def __post_init__(self) -> None:
        """Rejects impossible values."""
        take_values(self)
        if "" in self.decontaminate:
            raise FieldError("decontaminate", "", "give a file or a dataset")
        for field in fields(self) if not self.decontaminate else ():
            value = getattr(self, field.name)
            if value != field.default:
                text = text_of(field.type, value)
                raise FieldError(field.name, text, "it needs decontaminate=FILES_OR_DATASETS")
        ngram, named = self.decontaminate_ngram, self.decontaminate_fields
        for name, low, high, unit in (
            ("decontaminate_ngram", 1, _LONGEST, "words"),
            ("decontaminate_min_words", 1, ngram, "words, as decontaminate_ngram has"),
            ("decontaminate_share", 0, 1, "of the n-grams"),
        ):
            if not low <= (value := getattr(self, name)) <= high:
                raise FieldError(name, value, f"give from {low} to {high} {unit}")
        check_numbers(self)  # after the narrower ranges, whose errors name them
        if not all(named):
            reason = "give names separated by commas"
            raise FieldError("decontaminate_fields", join_list(named), reason)

    def parameters(self) -> dict[str, Any]:
        """Values for fingerprints; targets count by content, not by name.

        Raises:
          DataError: a target does not exist.
        """
        if not self.decontaminate:
            return {}
        files = target_files(self.decontaminate)
        decides = {n: v for n, v in super().parameters().items() if n != "decontaminate"}
        # A text in many documents was ignored before this rule.
        rule = {"decontaminate_common": "whole texts count"}
        return {**decides, **rule, "decontaminate_sha256": [file.sha256 for file in files]}

    def make_rules(self) -> Iterator[Rule]:
        """One rule, which drops documents or cuts units."""
        if self.decontaminate:
            # Imports Arrow's compute functions, which --help does not need.
            from textmill.pipelines.corpus.decontamination.finders import judge_texts

            unit = self.decontaminate_unit
            edits = "" if unit == "document" else "contaminated"
            judge = partial(judge_texts, unit=unit)
            yield Rule(self.REASONS, judge, edits, searches=True)


class TargetFile(NamedTuple):
    """A file of records, or a dataset, with evaluation text.

    Attributes:
      sha256: sha256 of the file, of a Textmill dataset's manifest, or of the concatenated sha256 of
        a Hugging Face dataset's files.
      path: path or URL.
      is_set: whether it is a dataset that Textmill wrote.
    """

    sha256: str
    path: str
    is_set: bool


def target_files(
    patterns: tuple[str, ...], tell: Callable[[str], None] | None = None
) -> tuple[TargetFile, ...]:
    """Finds all files, sorted by content; of equal files the first.

    Args:
      patterns: values of --decontaminate.
      tell: takes a note about files that are not read.

    Raises:
      DataError: a pattern matches no file, or a corpus is damaged.
    """
    files: dict[str, TargetFile] = {}
    # None of the files becomes a document, so links may lead anywhere.
    finder = FileFinder(follow_links=True, field="decontaminate")
    expanded = expand_lists(patterns, "decontaminate")
    found = (file for pattern in expanded for file in _find(pattern, finder))
    for file in sorted(found):
        files.setdefault(file.sha256, file)
    if tell and (note := finder.note()):
        tell(f"note: {flag('decontaminate')}: {note}")
    return tuple(files.values())


def _find(pattern: str, finder: FileFinder) -> list[TargetFile]:
    if corpus := find_corpus(pattern, follow_links=True):
        paths = [corpus.path(file) for file in corpus.documents if file.rows]
        return [TargetFile(store.sha256(path), path, is_set=False) for path in paths]
    manifest = os.path.join(pattern, MANIFEST)
    if store.exists(manifest):
        return [TargetFile(store.sha256(manifest), pattern, is_set=True)]
    if pattern.startswith(HUGGING_FACE):
        address = pattern.removeprefix(HUGGING_FACE)
        stored = huggingface.find_split(address, field="decontaminate").paths
        digests = "".join(map(store.sha256, stored))
        return [TargetFile(sha256(digests.encode()).hexdigest(), pattern, is_set=False)]
    paths = [path for path, _ in finder.find(pattern)]
    return [TargetFile(store.sha256(path), path, is_set=False) for path in paths]
