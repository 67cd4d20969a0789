"""Directories of published weights: read, refused, written whole; transformers opens them."""

import json
import warnings

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

from schemas.errors import DataError, UsageError
from schemas.tokenizer_json import token_ids, tokenizer_settings
from tests.tools.shard_factory import SPECIAL_IDS, tokenizer_json
from trainers.models.hf_files import (
    read_directory,
    refuse_existing,
    write_directory,
)

CONFIG = {"model_type": "bert", "architectures": ["BertModel"], "hidden_size": 2}
TENSORS = {
    "a.weight": np.arange(6, dtype=np.float32).reshape(2, 3),
    "b.bias": np.array([0.1, -0.2], np.float32),
}

OLD = ("gamma", "beta")


def sharded(directory, parts, config=CONFIG):
    """A directory of several files with an index; `parts` is file to tensors."""
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps(config))
    weight_map = {}
    for file, tensors in parts.items():
        save_file(tensors, directory / file)
        weight_map.update(dict.fromkeys(tensors, file))
    index = {"metadata": {}, "weight_map": weight_map}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    return directory


def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "deep" / "out"
    write_directory(str(path), CONFIG, dict(TENSORS, t=TENSORS["a.weight"].T), b"{}", {"x": 1})
    files = ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]
    assert sorted(p.name for p in path.iterdir()) == files
    assert [p.name for p in path.parent.iterdir()] == ["out"]
    config, tensors = read_directory(str(path), model_types=("bert",))
    assert config == CONFIG and list(tensors) == ["a.weight", "b.bias", "t"] and len(tensors) == 3
    for name, value in TENSORS.items():
        np.testing.assert_array_equal(tensors[name], value)
    np.testing.assert_array_equal(tensors["t"], TENSORS["a.weight"].T)
    with pytest.raises(KeyError):
        tensors["none"]


def test_a_sharded_directory(tmp_path):
    parts = {f"model-0000{i}.safetensors": {n: v} for i, (n, v) in enumerate(TENSORS.items())}
    path = sharded(tmp_path / "set", parts)
    _, tensors = read_directory(str(path))
    for name, value in TENSORS.items():
        np.testing.assert_array_equal(tensors[name], value)
    (path / "model-00001.safetensors").unlink()
    with pytest.raises(DataError, match="model-00001.safetensors is missing"):
        read_directory(str(path))
    save_file({"other": TENSORS["b.bias"]}, path / "model-00001.safetensors")
    with pytest.raises(DataError, match="lacks b.bias"):
        read_directory(str(path))
    outside = {"weight_map": {"a": "../x.safetensors"}}
    (path / "model.safetensors.index.json").write_text(json.dumps(outside))
    with pytest.raises(DataError, match="a file outside its directory"):
        read_directory(str(path))


@given(st.lists(st.floats(-65504, 65504, width=16), min_size=1, max_size=9))
def test_half_precision_becomes_float32(tmp_path_factory, values):
    path = tmp_path_factory.mktemp("half")
    (path / "config.json").write_text("{}")
    with np.errstate(over="ignore"):
        kinds = {n: np.array(values, n) for n in ("float16", "float32", "float64")}
    stored = {**kinds, "bfloat16": np.array(values, ml_dtypes.bfloat16), "i": np.arange(3)}
    save_file(stored, path / "model.safetensors")
    _, tensors = read_directory(str(path))
    for name, value in stored.items():
        wanted = np.int64 if name == "i" else np.float32
        assert tensors[name].dtype == wanted
        np.testing.assert_array_equal(tensors[name], value.astype(wanted))


def test_buffers_are_no_weights(tmp_path):
    buffers = ["transformer.h.0.attn.bias", "h.3.attn.masked_bias"]
    buffers += ["bert.embeddings.position_ids", "embeddings.token_type_ids"]
    kept = ["transformer.h.0.attn.c_attn.bias", "embeddings.position_embeddings.weight"]
    path = tmp_path / "set"
    write_directory(str(path), CONFIG, {n: np.zeros(1, np.float32) for n in buffers + kept})
    assert sorted(read_directory(str(path))[1]) == sorted(kept)


def test_old_names_of_a_norm(tmp_path):
    """bert-base-uncased is still published with them."""
    path = tmp_path / "set"
    old = {f"bert.LayerNorm.{name}": np.full(1, i, np.float32) for i, name in enumerate(OLD)}
    write_directory(str(path), CONFIG, old)
    _, tensors = read_directory(str(path))
    assert list(tensors) == ["bert.LayerNorm.bias", "bert.LayerNorm.weight"]
    assert tensors["bert.LayerNorm.weight"] == 0 and tensors["bert.LayerNorm.bias"] == 1


def test_refusals(tmp_path):
    with pytest.raises(UsageError, match=r"--init_from=.*no such directory.*hf download"):
        read_directory(str(tmp_path / "none"))
    path = tmp_path / "set"
    path.mkdir()
    with pytest.raises(UsageError, match="no config.json .it has no files"):
        read_directory(str(path))
    (path / "config.json").write_text(json.dumps(CONFIG))
    with pytest.raises(UsageError, match="no model.safetensors .it has config.json"):
        read_directory(str(path))
    (path / "pytorch_model.bin").write_bytes(b"pickle")
    with pytest.raises(
        UsageError, match="has pytorch_model.bin.*Opening a pickle.*save_pretrained"
    ):
        read_directory(str(path))
    with pytest.raises(UsageError, match="--weights=.*model_type 'bert'.*accepts gpt2, opt"):
        read_directory(str(path), model_types=("gpt2", "opt"), flag="--weights=")
    (path / "model.safetensors").write_bytes(b"\x08\0\0")
    with pytest.raises(DataError, match="model.safetensors is truncated or broken"):
        read_directory(str(path))
    for text, said in (("{", "is not JSON: .*copy the directory again"), ("[]", "holds a list")):
        (path / "config.json").write_text(text)
        with pytest.raises(DataError, match=said):
            read_directory(str(path))


def test_nothing_is_written_over(tmp_path):
    path = tmp_path / "out"
    path.mkdir()
    refuse_existing(str(path))  # empty
    write_directory(str(path), CONFIG, TENSORS)
    with pytest.raises(UsageError, match="--export=.*exists already"):
        refuse_existing(str(path))
    with pytest.raises(UsageError, match="exists already"):
        write_directory(str(path), CONFIG, TENSORS)
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot be written"):
        write_directory(str(tmp_path / "file" / "out"), CONFIG, TENSORS)


def test_a_failed_export_leaves_nothing(tmp_path):
    with pytest.raises(TypeError):
        write_directory(str(tmp_path / "out"), {"no": {1, 2}}, TENSORS)
    assert not list(tmp_path.iterdir())


def test_transformers_opens_the_tokenizer(tmp_path):
    content = tokenizer_json(50)
    ids = token_ids(json.loads(content))
    settings = tokenizer_settings(ids, SPECIAL_IDS, model_max_length=16)
    assert settings["mask_token"] == "<mask>" and settings["cls_token"] == "<s>"
    assert "cls_token" not in tokenizer_settings(ids, {"eos": 2})
    write_directory(str(tmp_path / "out"), {"model_type": "roberta"}, TENSORS, content, settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert tokenizer("w7 w9")["input_ids"] == [0, 7, 9, 2]
    assert (tokenizer.pad_token_id, tokenizer.mask_token_id, tokenizer.sep_token_id) == (1, 4, 2)
    assert tokenizer.model_max_length == 16
