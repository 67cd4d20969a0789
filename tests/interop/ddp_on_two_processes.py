"""One model trained by one process and by two under DDP (gloo, CPU): the same batches and weights.

    python -m tests.interop.ddp_on_two_processes

It writes a small set, trains a tiny decoder on it for 12 steps in one process, then 7 steps in two
processes and the rest, from a checkpoint, in two and in one. Needs torch.
"""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.multiprocessing.spawn import start_processes
from torch.nn.functional import cross_entropy, scaled_dot_product_attention
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from tests.tools.clm_factory import write_clm_set
from textmill.schemas.format.layouts import huggingface
from textmill.trainers.data.adapters import attention_mask
from textmill.trainers.data.batches import Batch
from textmill.trainers.on_torch.row_stream import RowStream
from textmill.trainers.reader import ShardSet

STEPS, STOP, BATCH = 12, 7, 8


class TinyDecoder(nn.Module):
    """One layer of attention with four heads."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(50, 32), nn.Embedding(16, 32)
        self.qkv, self.head = nn.Linear(32, 96), nn.Linear(32, 50)

    def forward(
        self, input_ids: torch.Tensor, position_ids: torch.Tensor, mask: torch.Tensor
    ) -> torch.Tensor:
        x = self.tokens(input_ids) + self.positions(position_ids)
        q, k, v = self.qkv(x).unflatten(-1, (3, 4, 8)).permute(2, 0, 3, 1, 4)
        attended = scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.head(x + attended.transpose(1, 2).flatten(2))


def convert(batch: Batch) -> Batch:
    """Makes the model's inputs in the loader's workers."""
    columns = huggingface(batch)
    mask = attention_mask(batch["segment_ids"], causal=True)
    return dict(columns, mask=mask, row_index=batch["row_index"])


def loss_of(model: torch.nn.Module, batch: dict[str, Any], ranks: int) -> torch.Tensor:
    """The mean over the tokens of all ranks, times their number, which DDP divides by."""
    logits = model(batch["input_ids"], batch["position_ids"], batch["mask"])
    labels = batch["labels"][:, 1:]
    counted = (labels != -100).sum()
    if ranks > 1:
        dist.all_reduce(counted)
    summed = cross_entropy(logits[:, :-1].flatten(0, 1), labels.flatten(), reduction="sum")
    return summed * ranks / counted


def train(
    rank: int, ranks: int, folder: str, name: str, start: int, stop: int, checkpoint: str
) -> None:
    """Trains steps start to stop and leaves NAME-RANK.pt: rows, losses, weights, optimizer."""
    torch.set_num_threads(1)
    if ranks > 1:
        meeting = f"file://{folder}/{name}-meeting"
        dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=ranks)
    torch.manual_seed(0)
    model = TinyDecoder()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    if checkpoint:
        before = torch.load(Path(folder, checkpoint), weights_only=True)
        model.load_state_dict(before["weights"])
        optimizer.load_state_dict(before["optimizer"])
    given = DistributedDataParallel(model) if ranks > 1 else model
    shards = ShardSet(str(Path(folder, "set")))
    stream = RowStream(
        shards, batch_size=BATCH, seed=0, start_step=start, stop_step=stop, convert=convert
    )
    rows, losses = [], []
    for batch in DataLoader(stream, batch_size=None, num_workers=2):
        loss = loss_of(given, batch, ranks)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if ranks > 1:
            dist.all_reduce(loss)
        rows.append(batch["row_index"].tolist())
        losses.append(float(loss.detach()) / ranks)
    state = {"weights": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save({"rows": rows, "losses": losses, **state}, Path(folder, f"{name}-{rank}.pt"))
    if ranks > 1:
        dist.destroy_process_group()


def run(ranks: int, folder: str, name: str, start: int, stop: int, checkpoint: str = "") -> dict:
    """Trains on all ranks; returns their rows together, and losses and weights of the first."""
    arguments = (ranks, folder, name, start, stop, checkpoint)
    # Forked, since importing PyTorch would take longer than all else.
    start_processes(train, arguments, nprocs=ranks, start_method="fork")
    files = [Path(folder, f"{name}-{rank}.pt") for rank in range(ranks)]
    parts = [torch.load(file, weights_only=True) for file in files]
    rows = [sum(step, []) for step in zip(*(part["rows"] for part in parts), strict=True)]
    return dict(parts[0], rows=rows)


def compare(folder: str) -> None:
    """Trains in all three ways; prints a line for each, or fails where rows or weights differ."""
    write_clm_set(Path(folder, "set"))
    alone = run(1, folder, "alone", 0, STEPS)
    print(f"1 process, steps 0 to {STEPS - 1}: the last loss is {alone['losses'][-1]:.4f}")
    first = run(2, folder, "first", 0, STOP)
    for ranks in (2, 1):
        found = run(ranks, folder, f"on-{ranks}", STOP, STEPS, "first-0.pt")
        assert first["rows"] + found["rows"] == alone["rows"]
        apart = max(
            float((found["weights"][name] - value).abs().max())
            for name, value in alone["weights"].items()
        )
        losses = np.subtract(first["losses"] + found["losses"], alone["losses"])
        print(
            f"2 processes to step {STOP - 1}, then {ranks}: the same rows; losses within "
            f"{np.abs(losses).max():.0e}, weights within {apart:.0e}"
        )
        assert np.abs(losses).max() < 1e-5 and apart < 1e-5


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        compare(folder)
