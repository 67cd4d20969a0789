"""50 steps of Trainer or of TRL's SFTTrainer on exported rows, beside plain PyTorch on the set's.

    uv venv baselines
    uv pip install --python baselines/bin/python transformers trl datasets accelerate
    python -m pipelines.export shards --to=parquet --layout=huggingface --output=rows
    baselines/bin/python -m tests.interop.train_huggingface trainer shards rows
    baselines/bin/python -m tests.interop.train_huggingface sft shards rows

A small GPT-2 of random weights, on the CPU. The plain loop reads the set by ShardSet, without the
export, and gives the model a mask [B, 1, L, L] of which tokens are of one document: were documents
seen together in the trainer, or a label at the wrong place, the losses would differ. It ends with 1
if they do, by more than 1e-4, in any step.
"""

import importlib.metadata
import sys
import tempfile
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import torch
import transformers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast, default_data_collator

from tests.tools.torch_models import nats_of
from textmill.trainers.reader import ShardSet

STEPS, ROWS = 50, 8
SETTINGS: dict[str, Any] = {
    **{"max_steps": STEPS, "per_device_train_batch_size": ROWS, "use_cpu": True},
    **{"learning_rate": 1e-3, "lr_scheduler_type": "constant", "max_grad_norm": 1.0},
    **{"train_sampling_strategy": "sequential", "logging_steps": 1, "report_to": "none"},
    **{"disable_tqdm": True, "save_strategy": "no", "bf16": False},
}


def main(kind: str, directory: str, export: str) -> None:
    """Trains both ways from the same weights; prints their losses."""
    shards = ShardSet(directory)
    files = sorted(map(str, Path(export).glob("train-*.parquet")))
    rows = datasets.load_dataset("parquet", data_files=files, split="train")
    with tempfile.TemporaryDirectory() as output:
        train = {"trainer": train_by_trainer, "sft": train_by_sft}[kind]
        found = train(make_model(shards), rows, directory, output)
    due = train_plainly(make_model(shards), shards)
    packages = ("transformers", "torch") + ("trl",) * (kind == "sft")
    print(", ".join(f"{package} {importlib.metadata.version(package)}" for package in packages))
    print("step   theirs    PyTorch")
    for step in (0, 1, STEPS - 1):
        print(f"{step + 1:4d} {found[step]:8.5f}   {due[step]:8.5f}")
    widest = max(abs(a - b) for a, b in zip(found, due, strict=True))
    print(f"widest difference of {STEPS} steps: {widest:.1e}")
    sys.exit(widest > 1e-4)


def make_model(shards: ShardSet) -> GPT2LMHeadModel:
    """The same weights each time."""
    torch.manual_seed(0)
    sizes: dict[str, Any] = {
        **{"n_embd": 64, "n_layer": 2, "n_head": 4},
        **{"vocab_size": shards.schema.vocab_size, "n_positions": shards.schema.max_length},
        **dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0),
    }
    return GPT2LMHeadModel(GPT2Config(**sizes))


def train_by_trainer(model: Any, rows: Any, directory: str, output: str) -> list[float]:
    """Losses that Trainer logs."""
    arguments = transformers.TrainingArguments(output_dir=output, **SETTINGS)
    trainer = transformers.Trainer(
        model=model, args=arguments, train_dataset=rows, data_collator=default_data_collator
    )
    trainer.train()
    return losses(trainer)


def train_by_sft(model: Any, rows: Any, directory: str, output: str) -> list[float]:
    """Losses that SFTTrainer logs; its own collator would drop the positions."""
    from trl import SFTConfig, SFTTrainer  # pyright: ignore[reportMissingImports]

    arguments = SFTConfig(
        output_dir=output,
        dataset_kwargs={"skip_prepare_dataset": True},
        remove_unused_columns=False,
        **SETTINGS,
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(Path(directory, "tokenizer.json")))
    tokenizer.pad_token_id = tokenizer.eos_token_id = 0
    trainer = SFTTrainer(
        model=model,
        args=arguments,
        train_dataset=rows,
        processing_class=tokenizer,
        data_collator=default_data_collator,
    )
    trainer.train()
    return losses(trainer)


def losses(trainer: Any) -> list[float]:
    """The loss of each step."""
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def train_plainly(model: GPT2LMHeadModel, shards: ShardSet) -> list[float]:
    """The same steps by PyTorch's AdamW, with a mask of documents."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0)
    found = []
    for step in range(STEPS):
        nats, counted = nats_of(model, shards.read("train", np.arange(ROWS) + step * ROWS))
        optimizer.zero_grad()
        (nats / counted).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        found.append(nats.item() / counted.item())
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])
