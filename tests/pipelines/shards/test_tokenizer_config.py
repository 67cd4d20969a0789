"""tokenizer_config.json of a dataset: `AutoTokenizer` finds the special ids of schema.json."""

import json
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tokenizers import Tokenizer

from tests.stress.fuzz_encoding import small_tokenizer
from tests.tools.shard_factory import replace_file
from tests.tools.tokenizer_families import FAMILIES
from textmill.pipelines.build_shards import main as build
from textmill.pipelines.encoding.tokenizer import load_tokenizer
from textmill.pipelines.shards.schema import tokenizer_config
from textmill.pipelines.verify import main as verify
from textmill.schemas.errors import DataError
from textmill.schemas.files.finished import read_dataset
from textmill.schemas.tokenizers.tokenizer_json import odd_settings


def opened(directory) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(str(directory))


def special_ids(theirs, roles):
    return {role: getattr(theirs, f"{role}_token_id") for role in roles}


@pytest.mark.parametrize("name", FAMILIES)
def test_every_type_of_tokenizer(name, tmp_path):
    small_tokenizer(name).save(str(tmp_path / "tokenizer.json"))
    tokenizer = load_tokenizer(tmp_path)
    schema: Any = SimpleNamespace(
        special_ids=tokenizer.special_ids, row_tokens=64, max_length=64, parameters={}
    )
    settings = tokenizer_config(schema, tokenizer)
    assert {tokenizer.ids[t]: t for t in tokenizer.special_tokens} == {
        i: t for t, i in tokenizer.ids.items() if i in tokenizer.all_special_ids
    }
    assert list(odd_settings(settings, tokenizer.ids, tokenizer.special_ids)) == []
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    theirs = opened(tmp_path)
    roles = ("bos", "eos", "pad", "mask", "unk")
    assert {
        role: number for role, number in special_ids(theirs, roles).items() if number is not None
    } == tokenizer.special_ids
    assert theirs.model_max_length == 64
    texts = ["Some words, and more.", "blåbær 漢字"]
    ours = Tokenizer.from_buffer(tokenizer.json).encode_batch(texts, add_special_tokens=False)
    assert theirs(texts, add_special_tokens=False)["input_ids"] == [o.ids for o in ours]


def test_a_dataset_opens_as_a_tokenizer(tmp_path, tokenizer_path, corpus):
    folder = tmp_path / "tokenizer"
    folder.mkdir()
    (folder / "tokenizer.json").write_bytes(Path(tokenizer_path).read_bytes())
    template = "{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}"
    given = {"padding_side": "left", "chat_template": template, "name_or_path": "/home/me"}
    given |= {"model_max_length": 9, "eos_token": "<mask>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(given))
    flags = [f"--input={corpus}", f"--tokenizer={folder}", "--num_shards=1"]
    for task in ("clm", "tokens"):
        output = tmp_path / task
        build([*flags, f"--task={task}", f"--output={output}"])
        assert "name_or_path" not in (output / "tokenizer_config.json").read_text()
        theirs, info = opened(output), read_dataset(str(output))
        assert theirs.eos_token_id == info.schema.special_ids["eos"] == 4
        assert special_ids(theirs, info.schema.special_ids) == info.schema.special_ids
        assert theirs.padding_side == "left" and theirs.chat_template == template
        assert theirs.model_max_length == {"clm": 1024, "tokens": 9}[task]
        verify([str(output)])
    output = tmp_path / "clm"
    settings = json.loads((output / "tokenizer_config.json").read_text())
    changed = json.dumps(settings | {"eos_token": "<s>"}).encode()
    replace_file(output, "tokenizer_config.json", changed)
    with pytest.raises(DataError, match="tokenizer_config.json: eos_token is '<s>', schema.json"):
        verify([str(output)])
