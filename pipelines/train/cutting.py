"""How documents become words, within which the merges stay."""

from dataclasses import dataclass

from pipelines.encoding.splitting.patterns import GPT2, PATTERNS
from schemas.errors import DataError

NO_NORMALIZER = "none"
NORMALIZERS = {  # and what `tokenizers` calls them
    "nfc": "NFC",
    "nfd": "NFD",
    "nfkc": "NFKC",
    "nfkd": "NFKD",
    "lowercase": "Lowercase",
    "strip_accents": "StripAccents",
}


@dataclass(frozen=True)
class Cutting:
    """What is done to a document, in this order.

    Attributes:
      normalizer: names of NORMALIZERS, separated by commas, one applied after another.
      add_prefix_space: put a space before a document that does not begin with one.
      pattern: the regular expression by which it is cut: what it matches is a word, and what lies
        between two matches is one.
    """

    pattern: str = PATTERNS[GPT2]
    normalizer: str = NO_NORMALIZER
    add_prefix_space: bool = False

    def __post_init__(self) -> None:
        """Refuses normalizers that are not known."""
        if unknown := [name for name in self._names() if name not in NORMALIZERS]:
            raise DataError(f"normalizer {unknown[0]!r} is none of {', '.join(NORMALIZERS)}")

    @property
    def normalizers(self) -> tuple[str, ...]:
        """As `tokenizers` calls them, one by one; none for "none"."""
        return tuple(NORMALIZERS[name] for name in self._names())

    def _names(self) -> list[str]:
        return [] if self.normalizer == NO_NORMALIZER else self.normalizer.split(",")
