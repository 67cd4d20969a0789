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
# Words that BertNormalizer and BertPreTokenizer may be given one by one. White space, ASCII
# punctuation and Chinese characters part words there, whatever stands beside them, and the
# normalizer changes a text character by character. So words can be counted as they stand in the
# text, and only distinct ones be normalized, cased or uncased (see `wordpiece`).
_SPACES, _MARKS = r" \t\r\n", r"!-/:-@\[-`{-~"
_CHINESE = (  # as BertNormalizer has them
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002a6df\U0002a700-\U0002b81f"
    "\U0002b920-\U0002ceaf\U0002f800-\U0002fa1f"
)
BERT_WORDS = rf" ?[^{_SPACES}{_MARKS}{_CHINESE}]+| ?[{_MARKS}{_CHINESE}]|[{_SPACES}]+"


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
        if unknown := [name for name in self.normalizers if name not in NORMALIZERS]:
            raise DataError(f"normalizer {unknown[0]!r} is none of {', '.join(NORMALIZERS)}")

    @property
    def normalizers(self) -> tuple[str, ...]:
        """The names one by one; none for "none"."""
        return () if self.normalizer == NO_NORMALIZER else tuple(self.normalizer.split(","))
