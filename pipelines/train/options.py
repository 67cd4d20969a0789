"""The command line of train_tokenizer -> frozen configuration that refuses."""

import re
from dataclasses import dataclass, fields
from typing import Annotated, Any

import tyro

from pipelines.encoding.splitting.patterns import NAMES, pattern_of
from pipelines.input_options import InputFlags
from pipelines.readers.corpus_files import corpus_parameters
from pipelines.readers.documents import Role
from pipelines.readers.files import expand_lists
from pipelines.readers.sources import Source
from pipelines.train.histogram import NO_NORMALIZER, NORMALIZERS, Cutting
from pipelines.train.models.table import BPE, MODELS, ModelKind
from pipelines.user_filter import FilterFlag, check_name, filter_parameters
from schemas.errors import UsageError

MAX_VOCABULARY = 1 << 24
_NAME = re.compile(r"[\w:-]*")  # a pattern's, as it may be misspelt
_NORMALIZERS = (NO_NORMALIZER, *NORMALIZERS)
_OF_WORDS = ("model", "vocab_size", "min_frequency", "max_token_length")


@dataclass(frozen=True)
class BpeFlags:
    """Of --model=bpe."""

    pattern: Annotated[str | None, tyro.conf.arg(metavar=f"{'|'.join(NAMES)}|REGEX")] = None
    """How text is cut into words, within which tokens stay; gpt2 if not given."""
    normalizer: Annotated[str | None, tyro.conf.arg(metavar="|".join(_NORMALIZERS))] = None
    """What the tokenizer does to text before it cuts it; several are separated by commas."""
    add_prefix_space: bool = False
    """Treat the first word of a document like any other: with a space before it."""


@dataclass(frozen=True)
class WordpieceFlags:
    """Of --model=wordpiece."""

    lowercase: bool = True
    """Small letters, and no accents: BERT uncased."""
    limit_alphabet: int | None = None
    """So many characters are kept, the most frequent; words with another are [UNK]."""
    initial_alphabet: str = ""
    """Characters that are kept before others, in the text or not."""


@dataclass(frozen=True)
class TextFlags(InputFlags):
    """What is read."""

    text_field: str = "text"
    """The field with the text; a.b is the field b of the field a."""
    group_field: str | None = None
    """A field such as the language: the report tells how the vocabulary serves each of its values.
    If not given, each --input is a group, or of a single one each folder that has files."""
    filter: FilterFlag = ""

    def parameters(self) -> dict[str, Any]:
        """What decides about the words, by flag.

        --group_field decides too: a document whose group is no name is refused.
        """
        own = {"text_field": self.text_field, "group_field": self.group_field}
        corpora = corpus_parameters(expand_lists(self.input))
        return super().parameters() | own | corpora | filter_parameters(self.filter)


@dataclass(frozen=True)
class TokenizerOptions:
    """Documents in, a tokenizer out: byte-level BPE or WordPiece.

    build_corpus cleans text, and --input takes the corpus that it leaves. Flags that are not listed
    go to Beam (--runner=..., --direct_num_workers=...). --config=FILE.yaml holds flags; those of
    the command line win.
    """

    vocab_size: int
    """Tokens of the vocabulary, special tokens and the 256 bytes, or characters, included."""
    output: str
    """The directory for tokenizer.json, histogram.parquet and report.json."""
    model: Annotated[str, tyro.conf.arg(metavar="|".join(MODELS))] = BPE
    """bpe: byte-level BPE, as of GPT-2 and RoBERTa; wordpiece: as of BERT."""
    from_histogram: str | None = None
    """Train from the histogram.parquet of an earlier run instead of from text."""
    min_frequency: int = 2
    """Pairs that occur less often are not merged."""
    max_token_length: int | None = None
    """Tokens are shorter than this, in bytes or characters; but two of these may always merge."""
    special_tokens: str | None = None
    """They take the first ids, in this order: <s>,<pad>,</s>,<unk>,<mask> if not given; of
    wordpiece [PAD],[UNK],[CLS],[SEP],[MASK]."""
    chat_template: str | None = None
    """A file with a chat template (Jinja), which goes into tokenizer_config.json."""
    overwrite: bool = False
    """Replace the tokenizer that another run left in the output directory."""
    preflight: bool = False
    """Look for what would fail on the runner (flags, buckets, packages, memory) and stop."""
    reading: tyro.conf.OmitArgPrefixes[TextFlags] = TextFlags()
    bpe: tyro.conf.OmitArgPrefixes[BpeFlags] = BpeFlags()
    wordpiece: tyro.conf.OmitArgPrefixes[WordpieceFlags] = WordpieceFlags()

    def __post_init__(self) -> None:
        """Refuses values that cannot work, before anything is read."""
        if not self.output:
            raise UsageError("--output is empty: give the directory of the tokenizer")
        if self.model not in MODELS:
            raise UsageError(f"--model={self.model}: give one of {', '.join(MODELS)}")
        self._refuse_other_models_flags()
        specials = self.specials()
        for token in specials:
            if not token.strip() or token != token.strip():
                raise UsageError(
                    f"--special_tokens={self.special_tokens}: {token!r} is empty or has white "
                    "space around it; separate them by commas alone"
                )
            if specials.count(token) > 1:
                raise UsageError(f"--special_tokens={self.special_tokens}: {token} stands twice")
        kind = self.model_kind()
        for token in kind.needed:
            if token not in specials:
                raise UsageError(
                    f"--special_tokens={self.special_tokens}: --model={self.model} needs {token}"
                )
        least = len(kind.first_tokens(specials))
        if not least <= self.vocab_size <= MAX_VOCABULARY:
            raise UsageError(
                f"--vocab_size={self.vocab_size}: at least {least}, for {kind.first_are} come "
                f"before any merge, and at most {MAX_VOCABULARY}"
            )
        for name, value, lowest in (
            ("min_frequency", self.min_frequency, 0),
            ("max_token_length", self.max_token_length, 1),
            ("limit_alphabet", self.wordpiece.limit_alphabet, 1),
        ):
            if value is not None and value < lowest:
                raise UsageError(f"--{name}={value}: at least {lowest}")
        self._check_cutting()
        check_name(self.reading.filter)
        if self.from_histogram is None:
            self.source()
        elif self.reading.input:
            raise UsageError("--input and --from_histogram: give one of them")
        elif self.reading.group_field:
            raise UsageError(
                "--group_field names a field of documents, and --from_histogram has words alone: "
                "give --input for the figures of groups"
            )
        elif self.reading.filter:
            raise UsageError(
                "--from_histogram holds counted words, and --filter drops documents before they "
                "are counted: leave it out, or give --input"
            )

    def _refuse_other_models_flags(self) -> None:
        for model in MODELS:
            own: BpeFlags | WordpieceFlags = getattr(self, model)
            for field in fields(own) if model != self.model else ():
                if getattr(own, field.name) != field.default:
                    raise UsageError(
                        f"--{field.name} says nothing to --model={self.model}, only to "
                        f"--model={model}: leave it out"
                    )

    def model_kind(self) -> ModelKind:
        """What the table of models says of --model."""
        return MODELS[self.model]

    def specials(self) -> tuple[str, ...]:
        """The tokens of --special_tokens, or those of the model, in their order."""
        given = self.special_tokens
        tokens = self.model_kind().special_tokens if given is None else given
        return tuple(tokens.split(",")) if tokens else ()

    def limits(self) -> dict[str, Any]:
        """How far words are merged: arguments of `merge_words`."""
        return {
            "vocab_size": self.vocab_size,
            "min_frequency": self.min_frequency,
            "max_token_length": self.max_token_length,
            "special_tokens": self.specials(),
        }

    def cutting(self) -> Cutting:
        """How documents become words, if it does not follow from a histogram."""
        own = self.bpe
        pattern = pattern_of(own.pattern) if own.pattern else self.model_kind().pattern
        return Cutting(pattern, own.normalizer or NO_NORMALIZER, own.add_prefix_space)

    def _check_cutting(self) -> None:
        """Refuses what is no pattern, as far as that is seen without `tokenizers`."""
        pattern, normalizer = self.bpe.pattern, self.bpe.normalizer
        if pattern is not None and pattern_of(pattern) == pattern and _NAME.fullmatch(pattern):
            raise UsageError(
                f"--pattern={pattern}: no pattern has this name; give one of {', '.join(NAMES)} "
                "(N is 1 to 9), or a regular expression, which has more than letters and digits"
            )
        for name in normalizer.split(",") if normalizer is not None else ():
            if name not in NORMALIZERS and normalizer != NO_NORMALIZER:
                raise UsageError(
                    f"--normalizer={normalizer}: {name!r} is none of {', '.join(_NORMALIZERS)}"
                )

    def source(self) -> Source:
        """What the flags ask to be read."""
        roles = (Role("text", "string", self.reading.text_field),)
        if self.reading.group_field:  # an id is no part of the content
            roles += (Role("group", "id", self.reading.group_field, optional=True),)
        return self.reading.source(roles)

    def parameters(self) -> dict[str, Any]:
        """What decides the tokenizer besides the text, for report.json."""
        return {
            **{name: getattr(self, name) for name in _OF_WORDS},
            **vars(self.bpe),
            **vars(self.wordpiece),
            "special_tokens": list(self.specials()),
            **(self.reading.parameters() if self.from_histogram is None else {}),
        }
