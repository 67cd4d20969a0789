"""Values of train_tokenizer's options that its command line writes as text."""

import re
from dataclasses import dataclass

from textmill.pipelines.encoding.patterns import NAMES, pattern_of
from textmill.pipelines.tokenizer.histogram import NO_NORMALIZER, NORMALIZERS
from textmill.schemas.errors import FieldError

_NAME = re.compile(r"[\w:-]*")  # the name of a pattern, perhaps misspelt


@dataclass(frozen=True)
class Pattern:
    """A splitting pattern: one of `NAMES`, or a regular expression."""

    text: str

    def __post_init__(self) -> None:
        """Refuses unknown names, without loading `tokenizers`."""
        if self.regex == self.text and _NAME.fullmatch(self.text):
            raise FieldError(
                "",
                self.text,
                f"no pattern has this name; give one of {', '.join(NAMES)} (N is 1 to 9), or a "
                "regular expression, which holds more than letters and digits",
            )

    @property
    def regex(self) -> str:
        """The regular expression."""
        return pattern_of(self.text)

    @classmethod
    def parse(cls, text: str) -> "Pattern":
        """`llama3` or an expression."""
        return cls(text)

    def __str__(self) -> str:
        """As it was given."""
        return self.text


@dataclass(frozen=True)
class Normalizers:
    """The steps of a tokenizer's normal form in their order, such as ("nfc", "lowercase")."""

    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuses unknown names."""
        for name in self.names:
            if name not in NORMALIZERS:
                known = ", ".join((NO_NORMALIZER, *NORMALIZERS))
                raise FieldError("", self, f"{name!r} is none of {known}")

    @classmethod
    def parse(cls, text: str) -> "Normalizers":
        """`none`, or names that commas separate."""
        return cls(() if text == NO_NORMALIZER else tuple(text.split(",")))

    def __str__(self) -> str:
        """`none`, or the names."""
        return ",".join(self.names) or NO_NORMALIZER
