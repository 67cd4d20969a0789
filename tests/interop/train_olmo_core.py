"""Trains OLMo-core's transformer on whole documents for 50 steps, and checks its first loss.

    python -m venv VENV
    VENV/bin/pip install torch ai2-olmo-core
    python -m pipelines.build_shards --task=tokens --file_format=npy \
        --input=train.jsonl.zst --tokenizer=gpt2 --output=documents --splits=train:1
    VENV/bin/python tests/interop/train_olmo_core.py documents

Each row of the first batch must be LENGTH ids of a shard, and the loss that OLMo-core reports for
that batch the cross-entropy that PyTorch finds for them, with the weights of the beginning.
"""

import copy
import glob
import importlib.metadata
import json
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from olmo_core.data import (  # pyright: ignore[reportMissingImports]
    NumpyDataLoaderConfig,
    NumpyDatasetDType,
    NumpyFSLDatasetConfig,
    TokenizerConfig,
)
from olmo_core.nn.transformer import TransformerConfig  # pyright: ignore[reportMissingImports]
from olmo_core.optim import AdamWConfig  # pyright: ignore[reportMissingImports]
from olmo_core.train import (  # pyright: ignore[reportMissingImports]
    Duration,
    TrainerConfig,
    prepare_training_environment,
    teardown_training_environment,
)
from olmo_core.train.callbacks import Callback  # pyright: ignore[reportMissingImports]
from olmo_core.train.train_module import (  # pyright: ignore[reportMissingImports]
    TransformerTrainModuleConfig,
)

LENGTH, BATCH, STEPS = 128, 4, 50
LOSS = "train/CE loss"


@dataclass
class Losses(Callback):
    """Keeps the first batch and the loss of every step."""

    first: list[torch.Tensor] = field(default_factory=list)
    losses: dict[int, float] = field(default_factory=dict)

    def pre_step(self, batch) -> None:
        """Notes the first batch."""
        self.first = self.first or [batch["input_ids"].clone()]

    def log_metrics(self, step: int, metrics: dict[str, float]) -> None:
        """Notes the loss."""
        if LOSS in metrics:
            self.losses[step] = metrics[LOSS]


def rows_of(paths: list[str]) -> set[bytes]:
    """All rows of LENGTH ids that shards hold."""
    shards = [np.fromfile(path, np.uint16) for path in paths]
    whole = [shard[: len(shard) // LENGTH * LENGTH].reshape(-1, LENGTH) for shard in shards]
    return {row.astype(np.int64).tobytes() for rows in whole for row in rows}


def train(directory: Path, work: str) -> None:
    """Trains, and prints what was found."""
    schema = json.loads((directory / "schema.json").read_text())
    eos = schema["special_ids"]["eos"]
    paths = sorted(glob.glob(str(directory / "train-*.ids.bin")))
    tokenizer = TokenizerConfig(vocab_size=schema["vocab_size"], eos_token_id=eos, pad_token_id=eos)
    dataset = NumpyFSLDatasetConfig(
        tokenizer=tokenizer,
        paths=paths,
        sequence_length=LENGTH,
        dtype=NumpyDatasetDType.uint16,
        work_dir=work,
    ).build()
    loader = NumpyDataLoaderConfig(global_batch_size=BATCH * LENGTH, seed=0, work_dir=work).build(
        dataset
    )
    model = TransformerConfig.olmo2_30M(vocab_size=schema["vocab_size"], n_layers=2).build(
        init_device="cpu"
    )
    module = TransformerTrainModuleConfig(
        rank_microbatch_size=BATCH * LENGTH,
        max_sequence_length=LENGTH,
        optim=AdamWConfig(lr=1e-3),
    ).build(model, device=torch.device("cpu"))
    begun = copy.deepcopy(model)
    kept = Losses()
    trainer = TrainerConfig(
        save_folder=work,
        device="cpu",
        max_duration=Duration.steps(STEPS),
        metrics_collect_interval=1,
        no_checkpoints=True,
        no_evals=True,
        callbacks={"losses": kept},
    ).build(module, loader)
    trainer.fit()

    ids = kept.first[0]
    due = rows_of(paths)
    assert all(row.astype(np.int64).tobytes() in due for row in ids.numpy()), "rows of no shard"
    with torch.no_grad():
        logits = begun(ids)[:, :-1]
    expected = F.cross_entropy(logits.flatten(0, 1).float(), ids[:, 1:].flatten()).item()
    first, last = kept.losses[1], kept.losses[STEPS]
    version = importlib.metadata.version("ai2-olmo-core")
    print(f"ai2-olmo-core {version}: {STEPS} steps, loss {first:.6f} -> {last:.6f}")
    print(f"PyTorch's first loss on the same {len(ids)} rows: {expected:.6f}")
    if abs(first - expected) > 1e-4:
        raise SystemExit("the first losses differ")


if __name__ == "__main__":
    prepare_training_environment(seed=1, backend=None)
    with tempfile.TemporaryDirectory() as work:
        train(Path(sys.argv[1]), work)
    teardown_training_environment()
