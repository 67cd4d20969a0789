"""Vocabulary and merges -> tokenizer.json, as `tokenizers` and `transformers` open it. Pure."""

import json
from collections.abc import Sequence

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors

from pipelines.encoding.splitting.patterns import GPT2, PATTERNS
from pipelines.train.bpe import Trained
from pipelines.train.cutting import Cutting
from pipelines.train.normalizing import normalizer_of

_NAMES = {  # what transformers calls them, for the special tokens that RoBERTa has
    "bos_token": "<s>",
    "cls_token": "<s>",
    "eos_token": "</s>",
    "sep_token": "</s>",
    "pad_token": "<pad>",
    "unk_token": "<unk>",
    "mask_token": "<mask>",
}


def tokenizer_json(trained: Trained, *, special_tokens: Sequence[str], cutting: Cutting) -> bytes:
    """The file's content: a byte-level BPE, and RoBERTa's `<s> text </s>` if it can.

    Ids, merges and added tokens are as `tokenizers` itself would save them after training. As in
    RoBERTa as it was published, `<mask>` takes the space before it along, because it stands for a
    word with its space.
    """
    vocabulary = {token: i for i, token in enumerate(trained.tokens)}
    tokenizer = Tokenizer(models.BPE(vocabulary, trained.merges))
    if cutting.normalizers:
        tokenizer.normalizer = normalizer_of(cutting.normalizers)
    tokenizer.pre_tokenizer = pre_tokenizer_of(cutting)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [
            AddedToken(token, lstrip=token == "<mask>", normalized=False, special=True)
            for token in special_tokens
        ]
    )
    if {"<s>", "</s>"} <= set(special_tokens):
        tokenizer.post_processor = processors.RobertaProcessing(
            ("</s>", vocabulary["</s>"]),
            ("<s>", vocabulary["<s>"]),
            add_prefix_space=cutting.add_prefix_space,
        )
    else:
        tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer.to_str(pretty=True).encode()


def pre_tokenizer_of(cutting: Cutting) -> pre_tokenizers.PreTokenizer:
    """What cuts text so, as published tokenizers write it.

    ByteLevel puts a space before each piece that it gets, not before each document, so that with
    another pattern than its own a step before the others has to: a Metaspace whose mark is a space.
    """
    if cutting.pattern == PATTERNS[GPT2]:
        return pre_tokenizers.ByteLevel(add_prefix_space=cutting.add_prefix_space)
    steps: list[pre_tokenizers.PreTokenizer] = []
    if cutting.add_prefix_space:
        steps.append(pre_tokenizers.Metaspace(" ", prepend_scheme="always", split=False))
    steps.append(pre_tokenizers.Split(Regex(cutting.pattern), "isolated"))
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
    return pre_tokenizers.Sequence(steps)


def tokenizer_config(
    *, special_tokens: Sequence[str], add_prefix_space: bool, chat_template: str | None = None
) -> bytes:
    """tokenizer_config.json: the roles of the special tokens, for `AutoTokenizer`."""
    names = {name: token for name, token in _NAMES.items() if token in special_tokens}
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_prefix_space": add_prefix_space,
        "clean_up_tokenization_spaces": False,
        **names,
        **({"chat_template": chat_template} if chat_template is not None else {}),
    }
    return (json.dumps(config, indent=2, sort_keys=True) + "\n").encode()
