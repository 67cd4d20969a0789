"""The tokenizer types of --model.

Each is a module of this package with four functions:

- `words_of(histogram, options)` returns the words to merge, with their counts;
- `train(words, options, progress)` returns the vocabulary and merges;
- `tokenizer_json(trained, words, options)` returns the content of tokenizer.json;
- `tokenizer_config(options)` returns the settings for tokenizer_config.json.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType

from pipelines.encoding.splitting.patterns import GPT2, PATTERNS, bert_words, first_tokens


@dataclass(frozen=True)
class ModelKind:
    """Facts about a tokenizer type that are needed before its module is loaded.

    Attributes:
      special_tokens: default of --special_tokens.
      needed: special tokens that it requires.
      pattern: default splitting pattern, a regular expression.
      first_tokens: takes special tokens; returns the tokens before any merge, for any text.
      first_are: description of these tokens in messages.
    """

    special_tokens: str
    needed: tuple[str, ...]
    pattern: str
    first_tokens: Callable[[Sequence[str]], list[str]]
    first_are: str


BPE, WORDPIECE = "bpe", "wordpiece"
MODELS = {
    BPE: ModelKind(
        special_tokens="<s>,<pad>,</s>,<unk>,<mask>",
        needed=(),
        pattern=PATTERNS[GPT2],
        first_tokens=first_tokens,
        first_are="the 256 bytes and the special tokens",
    ),
    WORDPIECE: ModelKind(
        special_tokens="[PAD],[UNK],[CLS],[SEP],[MASK]",
        needed=("[UNK]",),
        pattern=bert_words(),
        first_tokens=list,
        first_are="the special tokens",
    ),
}
_MODULES = {BPE: "byte_level_bpe", WORDPIECE: "bert_wordpiece"}


def load_model(name: str) -> ModuleType:
    """Imports the module of a tokenizer type; its loop takes half a second to load."""
    return import_module(f"{__package__}.{_MODULES[name]}")
