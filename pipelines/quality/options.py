"""The command line of train_quality_model -> frozen configuration that refuses bad values."""

from dataclasses import dataclass, field
from typing import Annotated

import tyro

from textmill.pipelines.input_options import InputFlags, Reading
from textmill.pipelines.linear_model.model_file import SOFTMAX, Settings
from textmill.pipelines.linear_model.training import Training
from textmill.schemas.commands.help import Help
from textmill.schemas.commands.values import OF_THIS_RUN, take_values
from textmill.schemas.errors import FieldError, UsageError, flag

HELP = Help(
    module="pipelines.train_quality_model",
    about="Trains a linear model that tells good documents from others, for build_corpus "
    "--quality_model: from two inputs, or from documents with a label. The model is a .bin file of "
    "fastText. It depends only on the set of documents and the flags.",
    usage="--good=PATH --other=PATH --output=FILE",
    example="--good=textbooks --other=corpus --output=quality.bin",
    page="docs/quality_model.md",
    common="good other input label_field good_label held_out overwrite",
    groups={
        "Input: good documents and others": "good other reading text_field label_field good_label",
        "Output: the model": "output overwrite",
        "Model: words, n-grams and their numbers": "word_ngrams minn maxn buckets dim min_count",
        "Training: how the model learns": "held_out epochs learning_rate seed",
    },
)
_Paths = Annotated[tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="PATH")]
_MOST = 1 << 28


@dataclass(frozen=True)
class QualityOptions:
    """The flags of train_quality_model."""

    output: Annotated[str, tyro.conf.arg(metavar="FILE")] = field(metadata=OF_THIS_RUN)
    """File or URL of the model, such as quality.bin. Its evaluation is written beside it, to
    FILE.json."""
    good: _Paths = ()
    """Inputs with good documents: a corpus, or files as of --input; repeatable."""
    other: _Paths = ()
    """Inputs with documents of all kinds, or with bad ones; repeatable."""
    reading: Reading = InputFlags()
    text_field: str = "text"
    """Field that holds the text; a.b is field b inside field a."""
    label_field: str | None = None
    """Field of the documents of --input that holds their label."""
    good_label: str | None = None
    """Label of good documents; documents with any other label are the other class."""
    held_out: float = 0.1
    """Share of documents, chosen by hash, that the model is not trained on but evaluated with."""
    word_ngrams: int = 2
    """Maximum number of words of an n-gram."""
    minn: int = 0
    """Minimum number of characters of the n-grams of a word."""
    maxn: int = 0
    """Maximum number of characters of the n-grams of a word; 0 for none. They help languages with
    long words, and take four times the time."""
    buckets: int = 1 << 20
    """Number of rows that n-grams share by hash."""
    dim: int = 8
    """Numbers of a row."""
    min_count: int = 5
    """Minimum number of a word in the documents; rarer ones count only in n-grams."""
    epochs: int = 5
    """How often the model is trained on each document."""
    learning_rate: float = 0.5
    """Learning rate of the first step; it falls to 0 in a line."""
    seed: int = 0
    """Seed of the first numbers and of the order of documents."""
    overwrite: bool = field(default=False, metadata=OF_THIS_RUN)
    """Replace the file."""

    def __post_init__(self) -> None:
        """Rejects impossible values before anything is read."""
        take_values(self)
        if not self.output:
            raise UsageError(f"{flag('output')} is empty: give the file of the model")
        has_two, has_labels = bool(self.good or self.other), bool(self.reading.input)
        if has_two == has_labels or has_two and not (self.good and self.other):
            raise UsageError(
                f"give {flag('good')} and {flag('other')}, or {flag('input')} with "
                f"{flag('label_field')} and {flag('good_label')}"
            )
        for name in ("label_field", "good_label"):
            value = getattr(self, name)
            if bool(value) != has_labels:
                needing, needed = ("input", name) if has_labels else (name, "input")
                raise UsageError(f"{flag(needing)} needs {flag(needed)}")
        limits = {
            "word_ngrams": (1, 10),
            "minn": (0, 20),
            "maxn": (0, 20),
            "buckets": (1, _MOST),
            "dim": (1, 1024),
            "min_count": (1, _MOST),
            "epochs": (1, 1000),
            "seed": (0, 2**63 - 1),
        }
        for name, (least, most) in limits.items():
            if not least <= getattr(self, name) <= most:
                raise FieldError(name, getattr(self, name), f"give {least} to {most:,}")
        if self.minn > self.maxn:
            raise FieldError("minn", self.minn, f"this is above maxn={self.maxn}")
        if not 0 < self.learning_rate <= 100:
            raise FieldError("learning_rate", self.learning_rate, "give a number above 0, to 100")
        if not 0 < self.held_out < 1:
            raise FieldError("held_out", self.held_out, "give a share between 0 and 1, such as 0.1")

    @property
    def training(self) -> Training:
        """How the model is trained."""
        settings = Settings(self.dim, self.word_ngrams, SOFTMAX, self.buckets, self.minn, self.maxn)
        return Training(settings, self.min_count, self.epochs, self.learning_rate, self.seed)
