"""Modules with weights, by our names and by Hugging Face's."""

from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Tuple

import numpy as np

Weights = Dict[str, np.ndarray]
"""Our name of each weight, "layers.0.qkv.weight", to a float32 array in PyTorch's layout: a linear
layer is [out, in]; query, key and value are joined along the first axis, in this order."""

NORMAL = None
LEAVES: Dict[str, Dict[str, Optional[float]]] = {
    "table": {"weight": NORMAL},
    "norm": {"weight": 1.0, "bias": 0.0},
    "linear": {"weight": NORMAL, "bias": 0.0},
    "matrix": {"weight": NORMAL},  # a linear layer without a bias
    "vector": {"bias": 0.0},
}
"""Kind of module -> its weights -> what fresh ones are filled with, or NORMAL numbers."""

ACTIVATIONS = {
    **{name: name for name in ("relu", "tanh", "silu", "gelu")},
    "swish": "silu",
    **dict.fromkeys(("gelu_new", "gelu_fast", "gelu_pytorch_tanh"), "tanh_gelu"),
}
"""Hugging Face's names of activations -> formulas, by which each framework finds its functions."""


class Module(NamedTuple):
    """A module with weights.

    Attributes:
      ours: "layers.0.qkv".
      theirs: Hugging Face's names; several are joined along the first axis of ours.
      kind: of LEAVES.
      rows: of each of theirs, along the first axis.
      width: of the second axis; 0: there is none.
      deviation: of fresh weights.
      is_turned: whether theirs is stored as [in, out] (GPT-2's Conv1D).
      part: what published weights may lack as a whole, in words; "" for what they may not.
    """

    ours: str
    theirs: Tuple[str, ...]
    kind: str
    rows: Tuple[int, ...]
    width: int = 0
    deviation: float = 0.02
    is_turned: bool = False
    part: str = ""

    @property
    def leaves(self) -> Dict[str, Tuple[int, ...]]:
        """Its weights and their shapes: {"weight": (out, in), "bias": (out,)}."""
        rows = (sum(self.rows),)
        shapes = {"weight": (*rows, self.width) if self.width else rows, "bias": rows}
        return {leaf: shapes[leaf] for leaf in LEAVES[self.kind]}

    @property
    def tensors(self) -> Dict[str, Tuple[int, ...]]:
        """Theirs by name, and the shapes that they have in files."""
        return {
            f"{name}.{leaf}": (rows, *shape[1:])[:: -1 if self.is_turned else 1]
            for leaf, shape in self.leaves.items()
            for name, rows in zip(self.theirs, self.rows)
        }


def modules_at(ours: str, theirs: str, table: Iterable[Tuple[Any, ...]]) -> List[Module]:
    """Modules whose names begin alike, such as those of a layer.

    modules_at("layers.0.", "h.0.", [("mlp_in", "linear", "mlp.c_fc", 512, 128)]) is [Module(
    "layers.0.mlp_in", ("h.0.mlp.c_fc",), "linear", rows=(512,), width=128)]; there may be several
    of their names, and rows for each.
    """
    modules = []
    for name, kind, names, rows, *width in table:
        names = (names,) if isinstance(names, str) else names
        rows = (rows,) * len(names) if isinstance(rows, int) else rows
        modules.append(Module(ours + name, tuple(theirs + n for n in names), kind, rows, *width))
    return modules
