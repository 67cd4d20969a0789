"""The oracle of all trainers: transformers' models, and the plainest training of one.

    model = make_model("opt-350m")              # of MODELS, its weights far from their start
    config, weights = as_ours(model, "CausalLM")
    due = compute(model, arguments, labels)     # logits, loss, gradients, a step of AdamW

Legend: B rows, L tokens a row.
"""

import json
import math
import sys
import warnings
from collections.abc import Iterable, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np

from tests.tools.model_cases import (
    DECAY,
    EPSILON,
    MODELS,
    RATE,
    Arrays,
    named,
    read_config,
)
from textmill.trainers.models.model_config import ModelConfig
from textmill.trainers.models.weights import from_published

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # theirs, at import
    import torch
    import transformers

transformers.utils.logging.disable_progress_bar()
transformers.utils.logging.set_verbosity_error()


def make_model(name: str) -> Any:
    """One of MODELS in evaluation mode, with weights that are all far from 0 and from 1."""
    return build_model(*MODELS[name])


def build_model(fields: dict[str, Any], head: str) -> Any:
    """The model of a config.json for a head, such as CausalLM; "" is the model without one."""
    kind = getattr(transformers, f"AutoModel{head and f'For{head}'}")
    config = transformers.AutoConfig.for_model(**fields)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = kind.from_config(config, attn_implementation="eager")
    random = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=random) * 0.1)
        held = dict(model.named_parameters())
        for dead in ("cls.predictions.bias", "lm_head.bias"):  # of a head that is not tied
            live = held.get(dead.replace("bias", "decoder.bias"))
            if live is not None:
                held[dead].copy_(live)
    return model.eval()


def save_model(path: Path, fields: dict[str, Any], head: str) -> Any:
    """The same, in a directory that transformers writes."""
    model = build_model(fields, head)
    model.save_pretrained(path)
    return model


def arrays_of(model: Any) -> Arrays:
    """Its weights by their names."""
    return {name: value.detach().numpy() for name, value in model.named_parameters()}


def as_ours(model: Any, head: str) -> tuple[ModelConfig, Arrays]:
    """Our configuration and weights of their model."""
    config = read_config(model.config.to_dict(), head)
    weights, notes = from_published(arrays_of(model), config, seed=0, where="here")
    assert not notes
    return config, weights


def compute(model: Any, arguments: Mapping[str, np.ndarray], labels: np.ndarray) -> Arrays:
    """In float64: `logits`, `loss`, `gradient/WEIGHT`, and `step/WEIGHT` after a step of AdamW."""
    model = deepcopy(model).double()
    given = {name: torch.from_numpy(np.asarray(value)) for name, value in arguments.items()}
    found = model(**given, labels=torch.from_numpy(np.asarray(labels)).long())
    found.loss.backward()
    held = {name: p for name, p in model.named_parameters() if p.grad is not None}
    gradients = {name: p.grad.numpy().copy() for name, p in held.items()}
    groups = [
        {"params": [p for p in held.values() if p.ndim > 1], "weight_decay": DECAY},
        {"params": [p for p in held.values() if p.ndim == 1], "weight_decay": 0.0},
    ]
    torch.optim.AdamW(groups, lr=RATE, eps=EPSILON).step()
    after = {name: p.detach().numpy() for name, p in held.items()}
    return named(found.logits.detach().numpy(), found.loss.item(), gradients, after)


def main(folder: Path) -> None:
    """The process that `model_cases.compute_apart` starts."""
    for name, (fields, head) in json.loads((folder / "cases.json").read_text()).items():
        if fields is None:
            kind = getattr(transformers, f"AutoModelFor{head}")
            model = kind.from_pretrained(folder / name, attn_implementation="eager").eval()
        else:
            model = build_model(fields, head)
            model.save_pretrained(folder / name)
        with np.load(folder / f"{name}.npz") as file:
            rows = dict(file)
        asked = {key: rows.pop(key) for key in [*rows] if key in ASKED}
        found = compute(model, rows, rows.pop("labels"))
        if asked:
            found["answers"] = greedy_answers(model, asked)
        np.savez(folder / f"{name}-out.npz", **found)  # pyright: ignore[reportArgumentType]


ASKED = ("prompts", "lengths", "new_tokens", "is_prefix")
NEVER = torch.finfo(torch.float32).min


def greedy_answers(model: Any, asked: Arrays) -> np.ndarray:
    """Answers by `generate`, filled up with eos; a prefix is run again for each token."""
    eos, new = model.config.eos_token_id, int(asked["new_tokens"])
    answers = np.full((len(asked["prompts"]), new), eos)
    for row, (prompt, length) in enumerate(zip(asked["prompts"], asked["lengths"], strict=True)):
        if not asked["is_prefix"]:
            made = greedy(model, prompt[:length].tolist(), new)
            answers[row, : len(made)] = made
            continue
        ids = torch.tensor(prompt[None, :length])
        for place in range(new):
            allowed = torch.ones((ids.shape[1], ids.shape[1]), dtype=torch.bool).tril()
            allowed[:, :length] = True
            mask = torch.where(allowed[None, None], 0.0, NEVER)
            best = model(ids, attention_mask=mask).logits[0, -1].argmax()
            answers[row, place] = best
            if best == eos:
                break
            ids = torch.cat([ids, best[None, None]], dim=1)
    return answers


def greedy(model: Any, prompt: list[int], new: int) -> list[int]:
    """The new tokens of `generate`, eos included; of any of its causal models."""
    ids = torch.tensor([prompt])
    pad = model.config.pad_token_id
    made = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        do_sample=False,
        max_new_tokens=new,
        pad_token_id=model.config.eos_token_id if pad is None else pad,
    )
    return made[0, len(prompt) :].tolist()


def open_model(directory: str) -> Any:
    """An exported directory in f32."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)


def nats_of(model: Any, batch: Arrays) -> tuple[torch.Tensor, torch.Tensor]:
    """Summed cross-entropy of the tokens that count, and their number.

    Positions count from 0 in each segment; a token attends to its segment up to itself.
    """
    ids_BxL = torch.from_numpy(batch["input_ids"].astype(np.int64))
    segments_BxL = torch.from_numpy(batch["segment_ids"].astype(np.int64))
    places = torch.arange(segments_BxL.shape[1])
    begins_BxL = torch.nn.functional.pad(segments_BxL.diff(dim=1) != 0, (1, 0), value=True)
    positions_BxL = places - torch.where(begins_BxL, places, 0).cummax(dim=1).values
    same_BxLxL = segments_BxL[:, :, None] == segments_BxL[:, None, :]
    mask = same_BxLxL[:, None].tril()
    weights = torch.from_numpy(batch["loss_weights"].astype(np.float32))[:, 1:]
    logits = model(ids_BxL, position_ids=positions_BxL, attention_mask=mask, use_cache=False).logits
    losses = torch.nn.functional.cross_entropy(
        logits[:, :-1].transpose(1, 2), ids_BxL[:, 1:], reduction="none"
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

    def step(self, batch: Arrays) -> float:
        """One optimizer step; returns the loss before it."""
        nats, counted = nats_of(self.model, batch)
        loss = nats / counted
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.schedule.step()
        return loss.item()


def perplexity(model: Any, batches: Iterable[Arrays]) -> float:
    """The perplexity of all rows together."""
    nats = counted = 0.0
    model.eval()
    with torch.no_grad():
        for batch in batches:
            found = nats_of(model, batch)
            nats, counted = nats + found[0].item(), counted + found[1].item()
    return math.exp(nats / counted)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
