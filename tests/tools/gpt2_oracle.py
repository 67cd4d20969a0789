"""What transformers' GPT-2 computes, in a process of its own: LLVM is in TensorFlow too.

    python tests/tools/gpt2_oracle.py FOLDER

reads FOLDER/cases.json, {name: config.json of a GPT2LMHeadModel, or null where FOLDER/NAME holds a
model}, and FOLDER/NAME.npz with

    input_ids, positions [B, L]     labels [B, L], -100 where none counts
    allowed [B, L, L]               who may attend whom
    prompts [N, P], lengths [N]     and new_tokens, and is_prefix: whether prompts see all of them

It writes FOLDER/NAME, the model, and FOLDER/NAME-out.npz: `logits`, `loss` (the sum), gradients of
its mean as `gradient/WEIGHT`, the weights after a step of AdamW as `step/WEIGHT`, and greedy
`answers`, filled up with eos: of `generate`, or for prefixes of the whole text anew for each token.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
from transformers import GPT2Config, GPT2LMHeadModel

# An epsilon above the noise of gradients that are 0 but for rounding, as those of keys' biases.
LEARNING_RATE, EPSILON = 1e-3, 1e-5
NEVER = torch.finfo(torch.float32).min


def make_model(folder: Path, name: str, config: dict | None) -> GPT2LMHeadModel:
    """Random and written, or what is there; f32, without dropout."""
    if config is None:
        return GPT2LMHeadModel.from_pretrained(folder / name, attn_implementation="eager").eval()
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(**{**config, "attn_implementation": "eager"})).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape))
    model.save_pretrained(folder / name)
    return model


def logits_of(model, ids, allowed, positions=None):
    """Logits with attention as told: a mask of four dimensions is taken as it is."""
    mask = torch.where(torch.tensor(allowed)[:, None], 0.0, NEVER)
    return model(ids, attention_mask=mask, position_ids=positions).logits


def answers_of(model, given) -> np.ndarray:
    """Greedy answers to each prompt, one prompt after another."""
    eos, new = model.config.eos_token_id, int(given["new_tokens"])
    answers = np.full((len(given["prompts"]), new), eos)
    for row, (prompt, length) in enumerate(zip(given["prompts"], given["lengths"], strict=True)):
        ids = torch.tensor(prompt[None, :length])
        if not given["is_prefix"]:
            made = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=new,
                do_sample=False,
                pad_token_id=eos,
            )
            answers[row, : made.shape[1] - length] = made[0, length:].numpy()
            continue
        for place in range(new):
            allowed = np.tril(np.ones((ids.shape[1], ids.shape[1]), bool))
            allowed[:, :length] = True
            best = logits_of(model, ids, allowed[None])[0, -1].argmax()
            answers[row, place] = best
            if best == eos:
                break
            ids = torch.cat([ids, best[None, None]], dim=1)
    return answers


def answer_case(folder: Path, name: str, config: dict | None) -> None:
    """Computes and writes one case."""
    with np.load(folder / f"{name}.npz") as file:
        given = dict(file)
    model = make_model(folder, name, config)
    with torch.no_grad():
        found = {"answers": answers_of(model, given)}
    ids, labels, positions = (
        torch.tensor(given[key].astype(int)) for key in ("input_ids", "labels", "positions")
    )
    logits = logits_of(model, ids, given["allowed"], positions)
    loss = torch.nn.functional.cross_entropy(
        logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100, reduction="sum"
    )
    found["logits"], found["loss"] = logits.detach().numpy(), loss.detach().numpy()
    (loss / (labels[:, 1:] >= 0).sum()).backward()
    named = dict(model.named_parameters())
    for weight, parameter in named.items():
        assert parameter.grad is not None
        found[f"gradient/{weight}"] = parameter.grad.numpy().copy()
    decayed = [p for p in named.values() if p.ndim > 1]
    others = [p for p in named.values() if p.ndim < 2]
    groups = [{"params": decayed, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}]
    # Keras adds epsilon to the root before it corrects the bias: see on_tf/tf_optimizers.py.
    epsilon = EPSILON / (1 - 0.999) ** 0.5
    torch.optim.AdamW(groups, lr=LEARNING_RATE, eps=epsilon).step()
    for weight, parameter in named.items():
        found[f"step/{weight}"] = parameter.detach().numpy()
    np.savez(folder / f"{name}-out.npz", **found)  # pyright: ignore[reportArgumentType]


def main(folder: Path) -> None:
    """Answers all cases."""
    for name, config in json.loads((folder / "cases.json").read_text()).items():
        answer_case(folder, name, config)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
