"""Directories of published weights: read, refused, written whole; transformers opens them."""

import json
import warnings

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

from tests.tools.shard_factory import SPECIAL_IDS, tokenizer_json
from textmill.schemas.errors import DataError, UsageError
from textmill.schemas.tokenizers.tokenizer_json import token_ids, tokenizer_settings
from textmill.trainers.models.hf_files import read_directory, refuse_existing, write_directory

CONFIG = {"model_type": "roberta", "architectures": ["RobertaModel"], "hidden_size": 2}
TENSORS = {
    "a.weight": np.arange(6, dtype=np.float32).reshape(2, 3),
    "b.bias": np.array([0.1, -0.2], np.float32),
}


def test_what_is_written_is_read(tmp_path):
    """By transformers, too, which finds the tokenizer."""
    content, path = tokenizer_json(50), tmp_path / "deep" / "out"
    ids = token_ids(json.loads(content))
    settings = tokenizer_settings(ids, SPECIAL_IDS, model_max_length=16)
    assert settings["mask_token"] == "<mask>" and settings["cls_token"] == "<s>"
    assert "cls_token" not in tokenizer_settings(ids, {"eos": 2})
    write_directory(str(path), CONFIG, dict(TENSORS, t=TENSORS["a.weight"].T), content, settings)
    files = ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]
    assert sorted(p.name for p in path.iterdir()) == files
    assert [p.name for p in path.parent.iterdir()] == ["out"]
    config, tensors = read_directory(str(path), model_types=("bert", "roberta"))
    assert config == CONFIG and list(tensors) == ["a.weight", "b.bias", "t"] and len(tensors) == 3
    for name, value in TENSORS.items():
        np.testing.assert_array_equal(tensors[name], value)
    np.testing.assert_array_equal(tensors["t"], TENSORS["a.weight"].T)
    with pytest.raises(KeyError):
        tensors["none"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(path)
    assert tokenizer("w7 w9")["input_ids"] == [0, 7, 9, 2]
    assert (tokenizer.pad_token_id, tokenizer.mask_token_id, tokenizer.sep_token_id) == (1, 4, 2)
    assert tokenizer.model_max_length == 16


@pytest.mark.parametrize(
    ("weight_map", "said"),
    [
        ({"a": "none.safetensors"}, "none.safetensors is missing, and model.safetensors.index.js"),
        ({"a": "some.safetensors", "b": "some.safetensors"}, "some.safetensors lacks b, which"),
        ({"a": "../x.safetensors"}, "names '../x.safetensors', a file outside its directory"),
        ({"a": 1}, "has no weight_map of names to files"),
        (None, "has no weight_map of names to files"),
    ],
)
def test_an_index_that_does_not_fit_its_files_is_refused(tmp_path, weight_map, said):
    (tmp_path / "config.json").write_text("{}")
    save_file({"a": TENSORS["a.weight"]}, tmp_path / "some.safetensors")
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    with pytest.raises(DataError, match=said):
        read_directory(str(tmp_path))


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


def test_buffers_are_no_weights_and_norms_have_old_names(tmp_path):
    """bert-base-uncased is still published with both."""
    buffers = ["transformer.h.0.attn.bias", "h.3.attn.masked_bias"]
    buffers += ["bert.embeddings.position_ids", "embeddings.token_type_ids"]
    kept = ["embeddings.position_embeddings.weight", "transformer.h.0.attn.c_attn.bias"]
    names = [*buffers, *kept, "bert.LayerNorm.gamma", "bert.LayerNorm.beta"]
    stored = {name: np.full(1, number, np.float32) for number, name in enumerate(names)}
    write_directory(str(tmp_path / "set"), CONFIG, stored)
    _, tensors = read_directory(str(tmp_path / "set"))
    due = {"bert.LayerNorm.bias": 7, "bert.LayerNorm.weight": 6, kept[0]: 4, kept[1]: 5}
    assert dict(tensors) == due


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
    with pytest.raises(UsageError, match="has pytorch_model.bin.*Opening a pickle.*save_pretrai"):
        read_directory(str(path))
    with pytest.raises(UsageError, match="--weights=.*model_type 'roberta'.*accepts gpt2, opt"):
        read_directory(str(path), model_types=("gpt2", "opt"), field="weights")
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
    with pytest.raises(TypeError):
        write_directory(str(tmp_path / "odd"), {"no": {1, 2}}, TENSORS)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["file", "out"], "all, or nothing"
