"""What transformers' encoders compute, in a process of its own: LLVM is in TensorFlow too.

`Oracle(folder)` starts it. It reads FOLDER/cases.json, {name: config.json without model_type's
defaults}, and FOLDER/rows.npz with input_ids, attention_mask, token_type_ids [B, L] and label [B],
then does what is asked, a line each:

    make      FOLDER/NAME, a model of each case, with NAME.npz: `logits`, `loss`, gradients as
              `gradient/WEIGHT`, and the weights after a step of AdamW as `step/WEIGHT`
    open      the same `logits` of what lies in FOLDER/exported/NAME, with its `classes`
    encode    hidden `states` of the BertModel in FOLDER/encoder, into FOLDER/encoder.npz
"""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np

RATE, DECAY, EPSILON = (
    0.01,
    0.1,
    1e-3,
)  # gradients near 0, whose sign rounding decides, count little
KIND = {"bert": "Bert", "roberta": "Roberta", "electra": "Electra"}


class Oracle:
    """The process, as a test talks to it."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, what: str) -> None:
        """Returns when it is done."""
        assert self._process.stdin is not None and self._process.stdout is not None
        print(what, file=self._process.stdin, flush=True)
        assert self._process.stdout.readline() == f"{what} done\n"

    def found(self, name: str) -> dict[str, np.ndarray]:
        """What it wrote of a case."""
        with np.load(self.folder / f"{name}.npz") as file:
            return dict(file)

    def close(self) -> None:
        """Ends it."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


def _answer(folder: Path) -> None:
    import torch
    import transformers

    def arguments(rows):
        return {name: torch.from_numpy(rows[name]) for name in rows if name != "label"}

    def make(name, fields, rows):
        torch.manual_seed(0)
        kind = KIND[fields.pop("model_type")]
        config = getattr(transformers, f"{kind}Config")(**fields)
        model = getattr(transformers, f"{kind}ForSequenceClassification")(config).eval()
        with torch.no_grad():  # far from their start, so that every term counts
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.1)
        model.save_pretrained(folder / name)
        found = model(**arguments(rows), labels=torch.from_numpy(rows["label"]))
        found.loss.backward()
        named = dict(model.named_parameters())
        out = {f"gradient/{name}": p.grad.numpy() for name, p in named.items()}
        groups = [
            {"params": [p for p in named.values() if p.ndim > 1], "weight_decay": DECAY},
            {"params": [p for p in named.values() if p.ndim <= 1], "weight_decay": 0.0},
        ]
        torch.optim.AdamW(groups, lr=RATE, eps=EPSILON).step()
        out.update({f"step/{name}": p.detach().numpy() for name, p in named.items()})
        logits, loss = found.logits.detach().numpy(), found.loss.item()
        np.savez(folder / f"{name}.npz", logits=logits, loss=loss, **out)

    for line in sys.stdin:
        with np.load(folder / "rows.npz") as file:
            rows = dict(file)
        if line == "make\n":
            for name, fields in json.loads((folder / "cases.json").read_text()).items():
                make(name, fields, rows)
        elif line == "open\n":
            for path in (folder / "exported").iterdir():
                opened = transformers.AutoModelForSequenceClassification.from_pretrained(path)
                logits = opened.eval()(**arguments(rows)).logits.detach().numpy()
                classes = list(opened.config.id2label.values())
                np.savez(folder / f"exported-{path.name}.npz", logits=logits, classes=classes)
        elif line == "encode\n":
            model = transformers.BertModel.from_pretrained(folder / "encoder").eval()
            states = model(**arguments(rows)).last_hidden_state.detach().numpy()
            np.savez(folder / "encoder.npz", states=states)
        print(line.strip(), "done", flush=True)


if __name__ == "__main__":
    _answer(Path(sys.argv[1]))
