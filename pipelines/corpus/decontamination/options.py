"""The flags of decontamination, which are among those of filters."""

from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal, NamedTuple, get_args

import tyro

from pipelines.corpus.decontamination.target_files import target_files
from schemas.errors import UsageError

Unit = Literal["document", "paragraph", "line"]
_LONGEST = 64  # words of an n-gram


class Rule(NamedTuple):
    """What flags say, and where they say nothing what they mean; see `Decontamination`."""

    fields: str = ""
    ngram: int = 13
    min_words: int = 5
    share: float = 0.0
    max_documents: int = 10
    unit: Unit = "document"


@dataclass(frozen=True)
class Decontamination:
    """Flags that keep text of evaluation sets out; None where they are not given."""

    decontaminate: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """Drop documents that hold text of these: files, as --input names them, or shard sets, of which
    all splits but train count; may be given more than once."""
    decontaminate_fields: str | None = None
    """Fields of the files that hold text, with commas between them: question,answer. Each is a text
    of its own. If not given, question of SQuAD's JSON and of sets of questions, else text."""
    decontaminate_ngram: int | None = None
    """Words that must follow each other alike, whatever their case and what lies between them; of
    texts that are shorter, all. 13 if not given."""
    decontaminate_min_words: int | None = None
    """Texts of fewer words are not looked for: they occur by chance. 5 if not given."""
    decontaminate_share: float | None = None
    """Share of a text's n-grams that a document must hold; any one of them if not given."""
    decontaminate_max_documents: int | None = None
    """An n-gram that stands in more documents of the input than this is common language and does
    not count; 0 to count them all, for which the input is not read twice. 10 if not given."""
    decontaminate_unit: Unit | None = None
    """What is left out: the document, if not given; or the paragraph (between blank lines) or the
    line, and the document only if nothing else is in it."""
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
        rule = self.rule
        for name, is_right, due in (
            ("unit", rule.unit in get_args(Unit), f"one of {', '.join(get_args(Unit))}"),
            ("ngram", 1 <= rule.ngram <= _LONGEST, f"from 1 to {_LONGEST} words"),
            (
                "min_words",
                1 <= rule.min_words <= rule.ngram,
                f"from 1 to {rule.ngram}, the words of --decontaminate_ngram",
            ),
            ("share", 0 <= rule.share <= 1, "a share from 0 to 1"),
            ("max_documents", rule.max_documents >= 0, "at least 0"),
            ("fields", all(self.fields()) or not rule.fields, "names with commas between them"),
        ):
            if not is_right:
                raise UsageError(f"--decontaminate_{name}={getattr(rule, name)}: {due}")

    @property
    def rule(self) -> Rule:
        """The rule with its defaults."""
        given = {name: getattr(self, f"decontaminate_{name}") for name in Rule._fields}
        return Rule(**{name: value for name, value in given.items() if value is not None})

    def fields(self) -> tuple[str, ...]:
        """Of --decontaminate_fields; () where it is not given."""
        given = self.rule.fields
        return tuple(field.strip() for field in given.split(",")) if given else ()

    def parameters(self) -> dict[str, Any]:
        """What decides, for the fingerprint: of targets their content and not their names.

        Raises:
          DataError: there are no such files.
        """
        if not self.decontaminate:
            return {}
        rule = {f"decontaminate_{name}": value for name, value in self.rule._asdict().items()}
        files = target_files(self.decontaminate)
        return {**rule, "decontaminate_sha256": [file.sha256 for file in files]}
