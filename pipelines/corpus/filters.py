"""The flags that say which documents are kept, and in what normal form."""

import unicodedata
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, Literal, get_args

import tyro

from pipelines.corpus.decontamination.options import Decontamination
from pipelines.corpus.rules.c4 import C4, C4Flags
from pipelines.corpus.rules.fineweb import FINEWEB, FinewebFlags
from pipelines.corpus.rules.gopher import GOPHER, GopherFlags
from pipelines.corpus.rules.language import asked_labels, parse_languages
from pipelines.corpus.rules.presets import asked_for
from pipelines.user_filter import FilterFlag, check_name, filter_parameters
from schemas.errors import UsageError
from schemas.features import is_training

Normalize = Literal["none", "nfc", "nfkc"]
PAPERS = {"gopher": GOPHER, "c4": C4, "fineweb": FINEWEB}


@dataclass(frozen=True)
class Filters:
    """Flags that choose documents. What counts is all text of one, its roles together."""

    normalize: Normalize = "none"
    """Unicode normal form that texts are brought into, before anything else; lines then end with
    a newline, where they ended with CRLF or CR too."""
    min_chars: int = 0
    """Drop documents of fewer characters."""
    max_chars: int = 0
    """Drop documents of more characters; 0 for any number."""
    min_words: int = 0
    """Drop documents of fewer words, as white space separates them."""
    max_repetition: float = 1.0
    """Drop documents of which a larger share is repeated lines or their most frequent pair of
    words; Gopher's limit is 0.2."""
    language: str | None = None
    """Keep documents of these languages, such as nb,nn,en:0.65; with a colon, of those only whose
    probability is not less."""
    language_identifier: Literal["fasttext", "quick"] | None = None
    """What tells the language: fasttext (lid.176.ftz), which --language takes where nothing is
    said, or resiliparse's quick one. Both need the extra [languages]."""
    quality: str | None = None
    """Rules of papers for English text, with their numbers: gopher, c4, fineweb, or several with
    commas between. A flag of a single rule wins."""
    filter: FilterFlag = ""
    keep_rejects: bool = False
    """Keep the text of dropped documents, in rejects/filtered.jsonl."""
    gopher: Annotated[GopherFlags, tyro.conf.arg(name="")] = GopherFlags()
    c4: Annotated[C4Flags, tyro.conf.arg(name="")] = C4Flags()
    fineweb: Annotated[FinewebFlags, tyro.conf.arg(name="")] = FinewebFlags()
    decontamination: Annotated[Decontamination, tyro.conf.arg(name="")] = Decontamination()

    def __post_init__(self) -> None:
        """Refuses values that cannot be meant."""
        if self.normalize not in get_args(Normalize):
            raise UsageError(
                f"--normalize={self.normalize}: one of {', '.join(get_args(Normalize))}"
            )
        for name in ("min_chars", "max_chars", "min_words"):
            if getattr(self, name) < 0:
                raise UsageError(f"--{name}={getattr(self, name)}: at least 0")
        if 0 < self.max_chars < self.min_chars:
            raise UsageError(
                f"--max_chars={self.max_chars} is below --min_chars={self.min_chars}: no document "
                "could be kept"
            )
        if not 0 <= self.max_repetition <= 1:
            raise UsageError(
                f"--max_repetition={self.max_repetition}: a share from 0 to 1; Gopher's limit is "
                "0.2, and 1 keeps all"
            )
        if self.language is not None:
            parse_languages(self.language)
        elif self.language_identifier:
            raise UsageError(
                f"--language_identifier={self.language_identifier} tells languages, and --language "
                "names none"
            )
        for name in self.presets:
            if name not in PAPERS:
                raise UsageError(
                    f"--quality={self.quality}: {name!r} is none of {', '.join(PAPERS)}; several "
                    "have commas between"
                )
        check_name(self.filter)

    @property
    def presets(self) -> tuple[str, ...]:
        """The papers that --quality names."""
        return () if self.quality is None else tuple(self.quality.split(","))

    def check_texts(self, texts: int, place: str) -> None:
        """Refuses flags that look at a text where there is none, or edit it where there are more.

        Args:
          texts: of a document.
          place: the task.

        Raises:
          UsageError: names the flag.
        """
        defaults = _flags(asdict(_DEFAULT))
        for name, value in _flags(asdict(self)).items():
            chooses = name not in ("filter", "keep_rejects")
            if not texts and chooses and value != defaults[name]:
                raise UsageError(
                    f"--{name}={value} is of texts, and {place} has none before its template: "
                    "choose documents with --filter"
                )
        if texts > 1 and asked_for(self.c4, C4, "c4" in self.presets):
            raise UsageError(
                "--quality=c4 and flags of C4's take lines out of a text, and documents of "
                f"{place} are of {texts} texts: leave them out"
            )
        if texts > 1 and (unit := self.decontamination.rule.unit) != "document":
            raise UsageError(
                f"--decontaminate_unit={unit} cuts text out, and documents of {place} are of "
                f"{texts} texts: leave it out, so that the whole document goes"
            )

    def of_split(self, split: str) -> "Filters":
        """The filters of documents that are given for a split; "" where their hash decides.

        Nothing is looked for in files that are to be evaluated on: they may be the targets.
        """
        if not split or is_training(split):
            return self
        return replace(self, decontamination=Decontamination())

    def parameters(self) -> dict[str, Any]:
        """What decides, by flag name, for the fingerprint of what is made.

        With the numbers of each rule of --quality; a flag that is None is left out.
        With `filter_sha256`: an edited filter is another one.
        With `unicode`, whose version decides the normal form of characters new to it.

        Raises:
          UsageError: the function cannot be imported, or a language cannot be told here.
        """
        values = {
            name: value
            for name, value in asdict(self).items()
            if name not in ("keep_rejects", "decontamination", *PAPERS) and value is not None
        }
        values |= asked_labels(self)
        values |= self.decontamination.parameters()
        for name, paper in PAPERS.items():
            values |= asked_for(getattr(self, name), paper, name in self.presets)
        values |= filter_parameters(self.filter)
        if self.normalize != "none":
            values |= {"unicode": unicodedata.unidata_version, "line_ends": "lf"}
        return values


_DEFAULT = Filters()


def _flags(values: dict[str, Any]) -> dict[str, Any]:
    """All flags, those of the dataclasses among them too."""
    flags: dict[str, Any] = {}
    for name, value in values.items():
        flags |= value if isinstance(value, dict) else {name: value}
    return flags
