"""The kinds of tokenizers that --model names.

Each is a module of this folder, with four functions of the command's options:

- `words_of(histogram, options)` gives the words that are merged, counted;
- `train(words, options, progress)` gives what training found in them;
- `tokenizer_json(trained, words, options)` gives the file;
- `tokenizer_config(options)` gives what the file of that name says of it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType

from pipelines.encoding.splitting.patterns import GPT2, PATTERNS, bert_words, first_tokens


@dataclass(frozen=True)
class ModelKind:
    """What must be known of a kind before it is loaded.

    Attributes:
      special_tokens: if none are given.
      needed: the special tokens that it cannot do without.
      pattern: cuts words if none is given, a regular expression.
      first_tokens: special tokens to those that come before any merge, whatever the text.
      first_are: names them in messages.
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
    """The module of a kind; its loop takes half a second to load."""
    return import_module(f"{__package__}.{_MODULES[name]}")
