"""Documents that hold text of evaluation sets are dropped, or lose it: --decontaminate."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal, get_args

import tyro

from pipelines.corpus.decontamination.target_files import target_files
from pipelines.corpus.rules.rule import Family, Rule
from schemas.errors import UsageError

Unit = Literal["document", "paragraph", "line"]
_UNITS = get_args(Unit)
_LONGEST = 64  # words of an n-gram


@dataclass(frozen=True)
class Decontamination(Family):
    """Text of evaluation sets is kept out."""

    REASONS = ("contaminated",)
    CAUSES = {
        "contaminated": "the input may be the evaluation sets themselves, or their n-grams common "
        "language: see rejects/contamination.jsonl"
    }

    decontaminate: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """Drop documents that hold text of these: files, as --input names them, or shard sets, of which
    all splits but train count; may be given more than once."""
    decontaminate_fields: str = ""
    """Fields of the files that hold text, with commas between them: question,answer. Each is a text
    of its own. If not given, question of SQuAD's JSON and of sets of questions, else text."""
    decontaminate_ngram: int = 13
    """Words that must follow each other alike, whatever their case and what lies between them; of
    texts that are shorter, all."""
    decontaminate_min_words: int = 5
    """Texts of fewer words are not looked for: they occur by chance."""
    decontaminate_share: float = 0.0
    """Share of a text's n-grams that a document must hold; any one of them where it is 0."""
    decontaminate_max_documents: int = 10
    """An n-gram that stands in more documents of the input than this is common language and does
    not count; 0 to count them all, for which the input is not read twice."""
    decontaminate_unit: Unit = "document"
    """What is left out: the document; or the paragraph (between blank lines) or the line, and the
    document only if nothing else is in it."""
    # Where a run has put the n-grams: no flag, and not in the file that repeats the run.
    index: tyro.conf.Suppress[tyro.conf.Fixed[str | None]] = None

    def __post_init__(self) -> None:
        """Refuses values that cannot be meant."""
        if "" in self.decontaminate:
            raise UsageError("--decontaminate is empty: give a file or a shard set")
        for flag in fields(self) if not self.decontaminate else ():
            if getattr(self, flag.name) != flag.default:
                raise UsageError(
                    f"--{flag.name} says nothing without --decontaminate=FILES_OR_SETS"
                )
        ngram, least = self.decontaminate_ngram, self.decontaminate_min_words
        for name, is_right, due in (
            ("unit", self.decontaminate_unit in _UNITS, f"one of {', '.join(_UNITS)}"),
            ("ngram", 1 <= ngram <= _LONGEST, f"from 1 to {_LONGEST} words"),
            (
                "min_words",
                1 <= least <= ngram,
                f"from 1 to {ngram}, the words of --decontaminate_ngram",
            ),
            ("share", 0 <= self.decontaminate_share <= 1, "a share from 0 to 1"),
            ("max_documents", self.decontaminate_max_documents >= 0, "at least 0"),
            (
                "fields",
                all(self.fields()) or not self.decontaminate_fields,
                "names with commas between them",
            ),
        ):
            if not is_right:
                name = f"decontaminate_{name}"
                raise UsageError(f"--{name}={getattr(self, name)}: {due}")

    def fields(self) -> tuple[str, ...]:
        """Of --decontaminate_fields; () where it is not given."""
        given = self.decontaminate_fields
        return tuple(field.strip() for field in given.split(",")) if given else ()

    def parameters(self) -> dict[str, Any]:
        """What decides; of targets their content and not their names.

        Raises:
          DataError: there are no such files.
        """
        if not self.decontaminate:
            return {}
        files = target_files(self.decontaminate)
        decides = {n: v for n, v in vars(self).items() if n not in ("decontaminate", "index")}
        return {**decides, "decontaminate_sha256": [file.sha256 for file in files]}

    def make_rules(self) -> Iterator[Rule]:
        """One rule; it drops documents, or cuts out what is found.

        Raises:
          DataError: this machine does not see the n-grams.
        """
        if self.decontaminate:
            # Loads compiled loops, which --help does without.
            from pipelines.corpus.decontamination.finders import judge_texts, load_finder

            finder, unit = load_finder(self.index), self.decontaminate_unit
            edits = "" if unit == "document" else "contaminated"
            yield Rule(self.REASONS, lambda text: judge_texts(text, finder, unit), edits)
