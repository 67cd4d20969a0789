"""The plainest PyTorch training of a decoder on packed rows, to compare the Flax trainer with.

`transformers` has the model, PyTorch AdamW and clipping, and the schedule is written out once more.
Rows and their order come from the reader.

Legend: B rows, L tokens a row.
"""

import math
import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # theirs, at import
    import torch
    from transformers import AutoModelForCausalLM

Batch = dict[str, np.ndarray]


def open_model(directory: str) -> Any:
    """An exported directory in f32."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)


def rows_of(batch: Batch) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Ids [B, L], positions [B, L] from 0 in each segment, and what attends to what.

    The mask is bool [B, 1, L, L]: the same segment, and nothing that is to come.
    """
    segments = torch.from_numpy(batch["segment_ids"].astype(np.int64))
    places = torch.arange(segments.shape[1]).expand_as(segments)
    begins = torch.ones_like(segments, dtype=torch.bool)
    begins[:, 1:] = segments[:, 1:] != segments[:, :-1]
    positions = places - torch.where(begins, places, 0).cummax(dim=1).values
    same = segments[:, :, None] == segments[:, None, :]
    mask = (same & (places[:, :, None] >= places[:, None, :]))[:, None]
    return torch.from_numpy(batch["input_ids"].astype(np.int64)), positions, mask


def nats_of(model: Any, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """Summed cross-entropy of the tokens that count, and their number."""
    ids, positions, mask = rows_of(batch)
    weights = torch.from_numpy(batch["loss_weights"].astype(np.float32))[:, 1:]
    logits = model(ids, position_ids=positions, attention_mask=mask, use_cache=False).logits
    losses = torch.nn.functional.cross_entropy(
        logits[:, :-1].transpose(1, 2), ids[:, 1:], reduction="none"
    )
    return (losses * weights).sum(), weights.sum()


class PlainLoop:
    """AdamW with linear warm-up and linear decay; matrices alone decay; gradients are clipped."""

    def __init__(self, model: Any, *, steps: int, learning_rate: float):
        """Takes the model; all else is the Flax trainer's defaults, put down here by hand."""
        self.model = model.train()
        parameters = list(model.parameters())
        groups = [
            {"params": [p for p in parameters if p.ndim > 1], "weight_decay": 0.01},
            {"params": [p for p in parameters if p.ndim == 1], "weight_decay": 0.0},
        ]
        self.optimizer = torch.optim.AdamW(
            groups, lr=learning_rate, betas=(0.9, 0.98), eps=1e-6, fused=True
        )
        warmup = max(1, steps // 10)

        def share(done: int) -> float:
            if done < warmup:
                return (done + 1) / warmup
            return (steps - done) / (steps + 1 - warmup)

        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, share)

    def step(self, batch: Batch) -> float:
        """One optimizer step; returns the loss before it."""
        nats, counted = nats_of(self.model, batch)
        loss = nats / counted
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.schedule.step()
        return loss.item()


def perplexity(model: Any, batches: Iterable[Batch]) -> float:
    """The perplexity of all rows together."""
    nats = counted = 0.0
    model.eval()
    with torch.no_grad():
        for batch in batches:
            found = nats_of(model, batch)
            nats, counted = nats + found[0].item(), counted + found[1].item()
    return math.exp(nats / counted)


def greedy(model: Any, prompt: list[int], new: int) -> list[int]:
    """The new tokens of `generate`, eos included; of any of its causal models."""
    ids = torch.tensor([prompt])
    pad = model.config.pad_token_id
    made = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        do_sample=False,
        max_new_tokens=new,
        pad_token_id=pad,
    )
    return made[0, len(prompt) :].tolist()
