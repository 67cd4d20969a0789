"""Whether config.yaml and the files for TensorFlow Datasets say what schema.json says.

No reader of rows opens them, so that only `pipelines.verify` looks. Pure.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

import yaml

from pipelines.writers.tfds_info import tfds_files
from schemas.errors import DataError
from schemas.sidecar import Schema, SetInfo
from schemas.task_rules import PARAMETERS
from schemas.typed_json import parse_json, quote
from schemas.version import VERSION

_MOST_BYTES = 4 << 20  # of a config.yaml that is compared: YAML is read at 1 MB a second
_FIELDS = "encoding mask_copies mask_rate max_length packing seed static_masking task".split()
_FILE = "chat_template"  # a flag that names a file, whose content is recorded
# Flags that some tasks do not record, or not as they are by default.
_NOT_ALWAYS = {"bos", "input_format", "max_document_bytes", "max_target_length"}


def config_problems(content: bytes, schema: Schema) -> list[str]:
    """Flags of config.yaml that did not make this contract: each a sentence."""
    if len(content) > _MOST_BYTES:
        return [f"config.yaml has {len(content):,} bytes, more than the {_MOST_BYTES:,} of flags"]
    try:
        text = content.decode()
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text)):
            return ["config.yaml has aliases, which no run writes"]
        flags = yaml.safe_load(text)
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        return [f"config.yaml is not YAML: {' '.join(str(error).split()):.200}"]
    if not isinstance(flags, dict):
        return [f"config.yaml holds {quote(flags)}, not flags"]
    return [
        f"config.yaml: {name} is {quote(flag)}, where schema.json says {quote(due)}"
        for name, flag, due in _pairs(flags, schema)
        if json.dumps(flag) != json.dumps(due)  # 1 is neither true nor 1.0
    ]


def _pairs(flags: dict[str, Any], schema: Schema) -> Iterator[tuple[str, Any, Any]]:
    """Name, what the flag says and what the schema says, of all that both name."""
    dues = {**{name: getattr(schema, name) for name in _FIELDS}, **schema.parameters}
    recorded = PARAMETERS.keys() - _NOT_ALWAYS
    for name, flag in flags.items():
        if name == "classes" and isinstance(flag, str):
            flag = parse_json(flag.encode(), name) if flag[:1] == "[" else flag.split(",")
        if name == _FILE or (name == "max_target_length" and flag == 0):  # the latter by itself
            continue
        if name in dues or name in recorded or (str(name).endswith("_field") and flag):
            yield name, flag, dues.get(name)
    if "mask_unit" in flags and schema.static_masking:
        yield "mask_unit", flags["mask_unit"], schema.mask_unit
    if isinstance(flags.get("splits"), str) and not schema.splits_given:
        yield "splits", _numbers(flags["splits"], float), schema.splits
    if ":" in str(flags.get("num_shards", "")):
        yield "num_shards", _numbers(flags["num_shards"], json.loads), schema.shards


def _numbers(text: str, parse: Callable[[str], Any]) -> dict[str, Any]:
    """`train:0.9,test:0.1` -> {"test": 0.1, "train": 0.9}, or what of it can be read."""
    pairs = (item.strip().partition(":")[::2] for item in text.split(","))
    try:
        return {name: parse(number) for name, number in sorted(pairs)}
    except ValueError:
        return {"": text}


def tfds_problems(info: SetInfo, contents: dict[str, bytes]) -> list[str]:
    """Where the files for TensorFlow Datasets are not those of the set.

    Args:
      info: the set.
      contents: the files that it has, by name.
    """
    problems = []
    for name, made in tfds_files(info.schema, info.manifest.files, info.stats).items():
        if name not in contents:
            continue
        try:
            found, due = parse_json(contents[name], name), json.loads(made)
        except DataError as error:
            problems.append(str(error))
            continue
        if info.schema.code_version != VERSION and isinstance(found, dict):
            # The sentence for people is another version's; but that is named in it.
            told = found.get("description")
            if "description" in due and f" {info.schema.code_version}: " in str(told):
                due["description"] = told
        if found != due:
            problems.append(f"{name} does not describe the rows of schema.json and stats.json")
    return problems
