"""The command line of train_tokenizer -> frozen configuration that refuses bad values.

`MODELS` is the table of tokenizer types (--model).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from importlib import import_module
from types import ModuleType
from typing import Annotated, Any

import tyro

from textmill.pipelines.encoding.patterns import (
    GPT2,
    NAMES,
    PATTERNS,
    bert_words,
    first_tokens,
)
from textmill.pipelines.input_options import AssumedBytes, InputFlags, assumed_bytes
from textmill.pipelines.readers.corpus_files import corpus_parameters
from textmill.pipelines.readers.documents import Role
from textmill.pipelines.readers.files import expand_lists
from textmill.pipelines.readers.sources import Source
from textmill.pipelines.tokenizer.histogram import NO_NORMALIZER, NORMALIZERS, PreTokenization
from textmill.pipelines.tokenizer.values import Normalizers, Pattern
from textmill.pipelines.user_filter import FilterFlag, check_name, filter_parameters
from textmill.schemas.commands.help import BEAM_NOTE, CONFIG_NOTE, Help
from textmill.schemas.commands.values import (
    NONE,
    OF_THIS_RUN,
    join_list,
    spelled,
    spelled_list,
    take_values,
    text_of,
)
from textmill.schemas.errors import FieldError, UsageError, flag
from textmill.schemas.files import store


@dataclass(frozen=True)
class ModelKind:
    """Facts about a tokenizer type that are needed before its module is loaded.

    Attributes:
      special_tokens: default of --special_tokens.
      needed: special tokens that it requires.
      pattern: default splitting pattern, a regular expression.
      first_tokens: takes special tokens; returns the tokens before any merge, for any text.
      first_are: description of these tokens in messages.
      module: its module in this package.
    """

    special_tokens: tuple[str, ...]
    needed: tuple[str, ...]
    pattern: str
    first_tokens: Callable[[Sequence[str]], list[str]]
    first_are: str
    module: str


BPE, WORDPIECE = "bpe", "wordpiece"
MODELS = {
    BPE: ModelKind(
        special_tokens=("<s>", "<pad>", "</s>", "<unk>", "<mask>"),
        needed=(),
        pattern=PATTERNS[GPT2],
        first_tokens=first_tokens,
        first_are="the 256 bytes and the special tokens",
        module="byte_level_bpe",
    ),
    WORDPIECE: ModelKind(
        special_tokens=("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
        needed=("[UNK]",),
        pattern=bert_words(),
        first_tokens=list,
        first_are="the special tokens",
        module="bert_wordpiece",
    ),
}


def load_model(name: str) -> ModuleType:
    """Imports the module of a tokenizer type; its loop takes half a second to load.

    A module has `ROLES`, transformers' names for its special tokens, and four functions:
      - `words_of(histogram, options)` returns the words to merge, with their counts;
      - `train(words, options, progress)` returns the vocabulary and merges;
      - `tokenizer_of(trained, words, options)` returns the tokenizer of `tokenizers`;
      - `tokenizer_config(options)` returns the other settings for tokenizer_config.json.
    """
    return import_module(f"{__package__}.{MODELS[name].module}")


MAX_VOCABULARY = 1 << 24
_PATTERN_HELP = (
    "How text is cut into words, which no token crosses. Names are those of the models that "
    f"introduced a pattern: {', '.join(NAMES)}. Default: gpt2."
)
_NORMALIZER_HELP = (
    f"Normal form that the tokenizer gives text: {', '.join(NORMALIZERS)}, or several in order. "
    "A normalizer loses what it changes, but gives equivalent spellings the same tokens. "
    f"Default: {NO_NORMALIZER}."
)
_SPECIAL_TOKENS_HELP = (
    "Special tokens, which get the first ids in this order. Default: "
    f"{','.join(MODELS[BPE].special_tokens)}; for WordPiece "
    f"{','.join(MODELS[WORDPIECE].special_tokens)}."
)
_OF_WORDS = ("model", "vocab_size", "min_frequency", "max_token_length")


HELP = Help(
    module="pipelines.train_tokenizer",
    about="Trains a tokenizer on text: byte-level BPE like GPT-2's, or WordPiece like BERT's.",
    usage="--input=PATH --output=DIR --vocab_size=N",
    example="--input=corpus --output=tokenizer --vocab_size=32000",
    page="docs/tokenizers.md",
    common="document text_field model special_tokens min_frequency pattern normalizer lowercase "
    "from_histogram overwrite",
    groups={
        "Input: documents": "reading from_histogram",
        "Output: the tokenizer's files": "output chat_template",
        "Vocabulary: the tokens": "vocab_size model special_tokens min_frequency max_token_length",
        "BPE: flags of --model=bpe": "bpe",
        "WordPiece: flags of --model=wordpiece": "wordpiece",
        "Run: how the command runs": "overwrite dry_run assume_bytes preflight",
    },
    note=f"{CONFIG_NOTE} {BEAM_NOTE}",
)


def _refuse_outside(name: str, value: int | None, lowest: int) -> None:
    """Raises FieldError for a number that is too small, or that the loop of merges cannot hold."""
    if value is not None and not lowest <= value < 1 << 63:
        raise FieldError(name, value, f"at least {lowest} and below 2**63")


@dataclass(frozen=True)
class BpeFlags:
    """The flags of --model=bpe."""

    pattern: Annotated[
        Pattern | None,
        spelled(Pattern, "NAME|REGEX", none=NONE),
        tyro.conf.arg(help=_PATTERN_HELP),
    ] = None
    normalizer: Annotated[
        Normalizers | None,
        spelled(Normalizers, "NAME,...", none=NONE),
        tyro.conf.arg(help=_NORMALIZER_HELP),
    ] = None
    add_prefix_space: bool = False
    """Put a space before the first word of a document, so that it gets the tokens that it has
    elsewhere."""

    def __post_init__(self) -> None:
        """Checks the values."""
        take_values(self)

    def parameters(self) -> dict[str, Any]:
        """The flags and their texts."""
        return {one.name: text_of(one.type, getattr(self, one.name)) for one in fields(self)}


@dataclass(frozen=True)
class WordpieceFlags:
    """The flags of --model=wordpiece."""

    lowercase: bool = True
    """Lowercase text and strip its accents, as BERT uncased does. --no_lowercase is BERT cased."""
    limit_alphabet: int | None = None
    """Largest number of characters in the vocabulary; the most frequent stay. Words with any other
    character become [UNK]. Default: no limit."""
    initial_alphabet: Annotated[str, tyro.conf.arg(metavar="CHARACTERS")] = ""
    """Characters that --limit_alphabet always keeps, even if no text has them."""

    def __post_init__(self) -> None:
        """Checks the values."""
        take_values(self)
        _refuse_outside("limit_alphabet", self.limit_alphabet, 1)


@dataclass(frozen=True)
class TextFlags(InputFlags):
    """The documents that train_tokenizer reads."""

    text_field: str = "text"
    """Field that holds the text; a.b is field b inside field a. Text files have no fields."""
    group_field: str | None = None
    """Field by whose values the report compares fertility (tokens a word), such as the language.
    Default: each --input is a group; of a single --input, each folder with files."""
    filter: FilterFlag = ""

    def __post_init__(self) -> None:
        """Checks the values."""
        take_values(self)
        check_name(self.filter)

    def parameters(self) -> dict[str, Any]:
        """The flags that decide which words are counted.

        --group_field is one of them: a document whose group is not a name is rejected.
        """
        own = {"text_field": self.text_field, "group_field": self.group_field}
        patterns = expand_lists(self.input, "input")
        corpora = corpus_parameters(patterns, follow_links=self.follow_links)
        return super().parameters() | own | corpora | filter_parameters(self.filter)


@dataclass(frozen=True)
class TokenizerOptions:
    """The flags of train_tokenizer."""

    vocab_size: int
    """Tokens of the vocabulary, with the special tokens and the base alphabet (256 bytes for BPE,
    the characters for WordPiece). More tokens make shorter rows and larger embeddings."""
    output: str = field(metadata=OF_THIS_RUN)
    """Directory or URL of tokenizer.json, histogram.parquet and report.json."""
    model: Annotated[str, tyro.conf.arg(metavar="|".join(MODELS))] = BPE
    """Type of the tokenizer: byte-level BPE (GPT-2, RoBERTa, Llama 3) or WordPiece (BERT)."""
    from_histogram: Annotated[str | None, tyro.conf.arg(metavar="FILE")] = None
    """Train on the histogram.parquet of an earlier run, in place of --input. It takes seconds:
    use it to try another --vocab_size."""
    min_frequency: int = 2
    """Minimum count of a pair of tokens to be merged. A higher number keeps rare strings out of
    the vocabulary."""
    max_token_length: int | None = None
    """Tokens must be shorter than this, in bytes (BPE) or characters (WordPiece). Merges of two
    symbols of the base alphabet are always allowed. Default: no limit."""
    special_tokens: Annotated[
        tuple[str, ...] | None,
        spelled_list(str, "TOKEN,...", none=NONE),
        tyro.conf.arg(help=_SPECIAL_TOKENS_HELP),
    ] = None
    chat_template: Annotated[str | None, tyro.conf.arg(metavar="FILE")] = None
    """File with a chat template (Jinja), which becomes part of tokenizer_config.json. --task=chat
    needs one."""
    overwrite: bool = field(default=False, metadata=OF_THIS_RUN)
    """Replace the output of another run."""
    dry_run: bool = field(default=False, metadata=OF_THIS_RUN)
    """Print the plan (input, files, disk, memory, time) and stop."""
    assume_bytes: AssumedBytes = field(default=None, metadata=OF_THIS_RUN)
    """Size of the whole input that --dry_run plans for, such as 500GB or 2TB. The given files are
    taken as a sample of it."""
    preflight: bool = field(default=False, metadata=OF_THIS_RUN)
    """Check what could fail on the runner (flags, buckets, the job and its pickles) and stop."""
    reading: tyro.conf.OmitArgPrefixes[TextFlags] = TextFlags()
    bpe: tyro.conf.OmitArgPrefixes[BpeFlags] = BpeFlags()
    wordpiece: tyro.conf.OmitArgPrefixes[WordpieceFlags] = WordpieceFlags()

    def __post_init__(self) -> None:
        """Refuses values that cannot work, before anything is read."""
        take_values(self)
        assumed_bytes(self.assume_bytes, dry_run=self.dry_run)
        if self.dry_run and self.from_histogram is not None:
            raise UsageError(
                f"{flag('dry_run', True)} has nothing to plan: "
                f"{flag('from_histogram')} reads no text"
            )
        if not self.output:
            raise FieldError("output", self.output, "give the directory of the tokenizer")
        if self.model not in MODELS:
            raise FieldError("model", self.model, f"give one of {', '.join(MODELS)}")
        for model in {*MODELS} - {self.model}:
            _refuse_given(getattr(self, model), f"with {self.model}, only with {model}")
        self._check_specials()
        kind = MODELS[self.model]
        least = len(kind.first_tokens(self.specials))
        if not least <= self.vocab_size <= MAX_VOCABULARY:
            raise FieldError(
                "vocab_size",
                self.vocab_size,
                f"at least {least}, because {kind.first_are} come before any merge, and at most "
                f"{MAX_VOCABULARY}",
            )
        _refuse_outside("min_frequency", self.min_frequency, 0)
        _refuse_outside("max_token_length", self.max_token_length, 1)
        if self.from_histogram is None:
            _ = self.source
        else:
            _refuse_given(self.reading, "with a histogram, which holds words, not documents")

    def _check_specials(self) -> None:
        """Refuses special tokens that are empty, given twice or missing."""
        given = join_list(self.special_tokens or ())
        for token in self.specials:
            if not token.strip() or token != token.strip():
                reason = f"{token!r} is empty or has white space around it"
                reason += "; separate tokens by commas alone"
                raise FieldError("special_tokens", given, reason)
            if self.specials.count(token) > 1:
                raise FieldError("special_tokens", given, f"{token} is given twice")
        for token in MODELS[self.model].needed:
            if token not in self.specials:
                raise FieldError("special_tokens", given, f"{self.model} needs {token}")

    @cached_property
    def specials(self) -> tuple[str, ...]:
        """The special tokens that were given, or the model's own, in their order."""
        given = self.special_tokens
        return MODELS[self.model].special_tokens if given is None else given

    def limits(self) -> dict[str, Any]:
        """The limits of merging: arguments of `merge_words`."""
        return {
            "vocab_size": self.vocab_size,
            "min_frequency": self.min_frequency,
            "max_token_length": self.max_token_length,
            "special_tokens": self.specials,
        }

    @cached_property
    def cutting(self) -> PreTokenization:
        """How documents are cut into words, where no histogram decides it."""
        own = self.bpe
        pattern = own.pattern.regex if own.pattern else MODELS[self.model].pattern
        return PreTokenization(pattern, str(own.normalizer or NO_NORMALIZER), own.add_prefix_space)

    @cached_property
    def source(self) -> Source:
        """The source of the documents."""
        roles = (Role("text", "string", self.reading.text_field),)
        if self.reading.group_field:  # an id is not part of the content
            roles += (Role("group", "id", self.reading.group_field, optional=True),)
        return self.reading.source(roles)

    def parameters(self) -> dict[str, Any]:
        """The flags that decide the tokenizer, for report.json; a chat template as its sha256."""
        template = self.chat_template
        return {
            **{name: getattr(self, name) for name in _OF_WORDS},
            **self.bpe.parameters(),
            **vars(self.wordpiece),
            "special_tokens": list(self.specials),
            **(self.reading.parameters() if self.from_histogram is None else {}),
            **({"chat_template": store.sha256(template)} if template else {}),
        }


def _refuse_given(flags: BpeFlags | WordpieceFlags | TextFlags, where: str) -> None:
    """Raises FieldError for flags that have no effect, if they are not at their defaults."""
    for one in fields(flags):
        value = getattr(flags, one.name)
        if value != one.default:
            value = text_of(one.type, value)
            raise FieldError(one.name, value, f"it has no effect {where}: leave it out")
