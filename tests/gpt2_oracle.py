"""What transformers' GPT-2 computes, in a process of its own: LLVM is in TensorFlow too.

    python tests/gpt2_oracle.py FOLDER

reads FOLDER/cases.json, {name: config.json of a GPT2LMHeadModel}, and FOLDER/NAME.npz with
`input_ids`, `labels` (-100 where none counts), `prompts` and `lengths`; writes FOLDER/NAME (the
model) and FOLDER/NAME-out.npz: `logits`, `loss` (the sum), gradients as `gradient/WEIGHT`, the
weights after a step of AdamW as `step/WEIGHT`, and greedy `answers`, filled up with eos.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
from transformers import GPT2Config, GPT2LMHeadModel

LEARNING_RATE, EPSILON = 1e-3, 1e-8


def answer_case(folder: Path, name: str, config: GPT2Config) -> None:
    """Computes and writes one case."""
    torch.manual_seed(0)
    model = GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape))
    model.save_pretrained(folder / name)
    given = np.load(folder / f"{name}.npz")
    found = {}
    eos, new = config.eos_token_id, int(given["new_tokens"])
    answers = np.full((len(given["prompts"]), new), eos)
    for row, (prompt, length) in enumerate(zip(given["prompts"], given["lengths"], strict=True)):
        ids = torch.tensor(prompt[None, :length])
        made = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=new,
            do_sample=False,
            pad_token_id=eos,
        )[0, length:]
        answers[row, : len(made)] = made.numpy()
    found["answers"] = answers
    ids, labels = torch.tensor(given["input_ids"]), torch.tensor(given["labels"])
    logits = model(ids).logits
    loss = torch.nn.functional.cross_entropy(
        logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100, reduction="sum"
    )
    found["logits"], found["loss"] = logits.detach().numpy(), loss.detach().numpy()
    (loss / (labels[:, 1:] >= 0).sum()).backward()
    named = dict(model.named_parameters())
    for weight, parameter in named.items():
        found[f"gradient/{weight}"] = parameter.grad.numpy().copy()
    decayed = [p for p in named.values() if p.ndim > 1]
    others = [p for p in named.values() if p.ndim < 2]
    groups = [{"params": decayed, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}]
    # Keras adds epsilon to the root before it corrects the bias: see on_tf/optimizers.py.
    epsilon = EPSILON / (1 - 0.999) ** 0.5
    torch.optim.AdamW(groups, lr=LEARNING_RATE, eps=epsilon).step()
    for weight, parameter in named.items():
        found[f"step/{weight}"] = parameter.detach().numpy()
    np.savez(folder / f"{name}-out.npz", **found)


def main(folder: Path) -> None:
    """Answers all cases."""
    for name, config in json.loads((folder / "cases.json").read_text()).items():
        answer_case(folder, name, GPT2Config(**config))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
