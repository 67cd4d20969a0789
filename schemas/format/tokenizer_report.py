"""The text that a tokenizer was trained on, and its metrics (report.json). Python 3.8 syntax."""

from dataclasses import dataclass
from typing import Any, Dict, List, Tuple

from textmill.schemas.format.metadata import setting_differences
from textmill.schemas.typed_json import check, hash_json

FORMAT_VERSION = 2  # of report.json


@dataclass(frozen=True)
class TokenizerText:
    """The text of a tokenizer.

    Attributes:
      digest: sha256 of the inputs' sizes and hashes, regardless of their names and order; with
        --from_histogram, of that file.
      files: number of input files; 0 with --from_histogram.
      documents: documents whose words were counted.
      bytes: UTF-8 bytes of their text.
      refused: reason to number of documents that were rejected or filtered.
    """

    digest: str
    files: int
    documents: int
    bytes: int
    refused: Dict[str, int]


@dataclass(frozen=True)
class Fertility:
    """Metrics of a tokenizer on a group of its text.

    Attributes:
      group: the name of the group.
      documents: number of documents in the group.
      bytes: UTF-8 bytes of their text.
      sampled_documents: documents on which the metrics below are measured.
      tokens_per_word: fertility; at best 1, without tokens of several words.
      bytes_per_token: the compression.
      characters_per_token: the compression regardless of the script's bytes per character.
      words_of_over_3_tokens: share of the words that are split into more than three tokens.
    """

    group: str
    documents: int
    bytes: int
    sampled_documents: int
    tokens_per_word: float
    bytes_per_token: float
    characters_per_token: float
    words_of_over_3_tokens: float


@dataclass(frozen=True)
class TokenizerReport:
    """The content of report.json.

    Attributes:
      parameters: the options that decide the tokenizer besides the text.
      words: occurrences of words in the text.
      distinct_words: number of distinct words.
      vocab_size: size of the vocabulary; below --vocab_size if no pair was left to merge.
      merges: number of merges; one that spells a special token adds no token.
      tokens: tokens of the text, without special tokens.
      bytes_per_token: bytes of the text per token.
      words_of_one_token: share of the occurrences of words that are one token: the coverage.
      distinct_words_of_one_token: share of the distinct words that are one token.
      fertility: metrics of each group, the one with the most text first; empty with
        --from_histogram.
    """

    format_version: int
    code_version: str
    parameters: Dict[str, Any]
    text: TokenizerText
    words: int
    distinct_words: int
    vocab_size: int
    merges: int
    tokens: int
    bytes_per_token: float
    words_of_one_token: float
    distinct_words_of_one_token: float
    fertility: Tuple[Fertility, ...] = ()

    def __post_init__(self) -> None:
        """Rejects a different version of the format."""
        remedy = f"this Textmill reads version {FORMAT_VERSION}; train the tokenizer again"
        check(self.format_version == FORMAT_VERSION, "format_version", self.format_version, remedy)

    @property
    def fingerprint(self) -> str:
        """sha256 of the parameters, the text and the version of Textmill."""
        return hash_json([self.parameters, self.text.digest, self.code_version])

    def differences(self, parameters: Dict[str, Any]) -> List[str]:
        """Parameters of this stored tokenizer that differ from the requested ones."""
        if ("document" in self.parameters) != ("document" in parameters):
            return ["one is trained from text, the other from a histogram"]
        return setting_differences(self.parameters, parameters)
