"""The command line that makes a set again. Pure."""

import shlex
from collections.abc import Iterator
from typing import Any

import yaml

from schemas.sidecar import Schema

_OF_THE_SET = ("tokenizer", "num_shards", "config")


def build_command(config: bytes, schema: Schema) -> tuple[str, list[str]]:
    """The short command, by the set's config.yaml, and all flags that it stands for.

    The tokenizer is the one that the set carries, and shards are as many as it has, so that neither
    another machine nor `auto` makes a difference. DIR is the set's directory.

    Args:
      config: bytes of config.yaml.
      schema: the contract.
    """
    short = "python -m pipelines.build_shards --config=DIR/config.yaml --output=NEW_DIR"
    shards = ",".join(f"{split}:{count}" for split, count in sorted(schema.shards.items()))
    flags = ["--tokenizer=DIR/tokenizer.json", f"--num_shards={shards}"]
    for name, value in (yaml.safe_load(config) or {}).items():
        if name not in _OF_THE_SET:
            flags += _flags(name, value)
    return short, flags


def _flags(name: str, value: Any) -> Iterator[str]:
    if isinstance(value, bool):
        yield f"--{name}" if value else f"--no_{name}"
    elif isinstance(value, list):
        for item in value:
            yield from _flags(name, item)
    else:
        yield f"--{name}={shlex.quote(str(value))}"
