"""Textmill turns text into tokenized, packed datasets, and trains models on them.

    import textmill as tm

    corpus = tm.build_corpus(
        input="crawl/*.warc.gz",
        output="corpus",
        keep_fields=["url"],
        near_duplicates=tm.Jaccard(0.8),
    )
    tokenizer = tm.train_tokenizer(input=corpus, output="tokenizer", vocab_size=32_000)
    data = tm.build_shards(
        tm.Clm(max_length=1024), input=corpus, tokenizer=tokenizer, output="shards"
    )
    run = tm.train("flax_clm", shards=data, output="run", model="small", steps=1000)

The keywords are the flags of the commands. Names are imported when they are used, so that a
trainer's host needs no package of the pipelines, and a worker none of the trainers.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_PLACES = {
    **dict.fromkeys(
        (
            "build_corpus",
            "train_tokenizer",
            "build_shards",
            "train",
            "verify",
            "describe",
            "publish",
        ),
        "textmill.functions",
    ),
    **dict.fromkeys(("Corpus", "Tokenizer", "Dataset", "Run", "open"), "textmill.results"),
    **dict.fromkeys(
        ("Mlm", "Clm", "Chat", "Classification", "Qa", "SpanCorruption", "Tokens"), "textmill.tasks"
    ),
    **dict.fromkeys(("UsageError", "DataError"), "textmill.schemas.errors"),
    **dict.fromkeys(
        ("Bands", "Jaccard", "Shingle"), "textmill.pipelines.corpus.near_duplicates.flags"
    ),
    **dict.fromkeys(("KeptField", "Paragraphs"), "textmill.pipelines.corpus.options"),
    **dict.fromkeys(("Languages", "NgramLimits"), "textmill.pipelines.corpus.rules.shares"),
    **dict.fromkeys(("Normalizers", "Pattern"), "textmill.pipelines.tokenizer.values"),
    **dict.fromkeys(("ShardCounts", "Splits"), "textmill.pipelines.shards.values"),
    "train_quality_model": "textmill.functions",
    "QualityModel": "textmill.results",
    "ClassNames": "textmill.pipelines.tasks.class_names",
    "QuestionTemplate": "textmill.pipelines.tasks.questions",
    "TemplateArguments": "textmill.pipelines.tasks.chat_template",
    "ShardSet": "textmill.trainers.data.shard_set",
    "Stages": "textmill.trainers.data.stages",
}
_NAMES = {"open": "open_directory"}  # there, where it would hide Python's own
__all__ = list(_PLACES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'textmill' has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), _NAMES.get(name, name))


def __dir__() -> list[str]:
    return [*globals(), *_PLACES]
