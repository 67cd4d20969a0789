"""What a model's weights are made of: the one table behind building, importing and exporting it.

A family's rows say with letters what a configuration's `sizes` turns into numbers:

    Row("layers.N.mlp_in", "linear", {"bert.encoder.layer.N.intermediate.dense": "I"}, "H")

is, in a model of 2 layers, hidden states of 128 and a feed-forward block of 512,

    Module("layers.0.mlp_in", ("bert.encoder.layer.0.intermediate.dense",), "linear", (512, 128))

and the same for layer 1. No framework; Python 3.8 syntax.
"""

from itertools import groupby
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Tuple

import numpy as np

from schemas.errors import UsageError
from trainers.run.flags import at_least, share

Weights = Dict[str, np.ndarray]
"""Our name of each weight, "layers.0.qkv.weight", to a float32 array in PyTorch's layout: a linear
layer is [out, in]; query, key and value are joined along the first axis, in this order."""

LEAVES: Dict[str, Tuple[str, ...]] = {
    "table": ("weight",),
    "norm": ("weight", "bias"),
    "scale": ("weight",),  # a norm without a bias
    "linear": ("weight", "bias"),
    "matrix": ("weight",),  # a linear layer without a bias
    "vector": ("bias",),
}
"""Kind of module -> its weights."""

# Hugging Face's names; of silu and swish, and of the last three, each is the same formula.
ACTIVATIONS = (
    *("relu", "tanh", "silu", "swish"),
    *("gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh"),
)
DEVIATION = 0.02  # of fresh weights, in BERT, GPT-2 and what came after them


class Module(NamedTuple):
    """A module with weights.

    Attributes:
      ours: "layers.0.qkv".
      theirs: Hugging Face's names; several are joined along the first axis of ours.
      kind: of LEAVES.
      shape: of our weight, joined: [rows, width], [width] or [out, in].
      rows: of each of theirs, along the first axis of ours.
      deviation: of fresh weights.
      is_turned: whether theirs is stored as [in, out] (GPT-2's Conv1D).
      grows: whether its rows are the vocabulary.
      is_classes: whether its rows are the classes.
      part: what published weights may lack as a whole, in words; "" may not lack.
    """

    ours: str
    theirs: Tuple[str, ...]
    kind: str
    shape: Tuple[int, ...]
    rows: Tuple[int, ...]
    deviation: float = DEVIATION
    is_turned: bool = False
    grows: bool = False
    is_classes: bool = False
    part: str = ""

    def leaves(self) -> Dict[str, Tuple[int, ...]]:
        """Its weights and their shapes: {"weight": (out, in), "bias": (out,)}."""
        shapes = {"weight": self.shape, "bias": self.shape[:1]}
        return {leaf: shapes[leaf] for leaf in LEAVES[self.kind]}


class Row(NamedTuple):
    """A module of a family's models, before there are numbers.

    Attributes:
      ours: "layers.N.qkv" is one in every layer.
      kind: of LEAVES.
      theirs: Hugging Face's names, each with the letter of its rows.
      width: letter of what comes in, or of a table's width; "" for norms and vectors.
      when: property of the configuration that must hold for this module to be there.
      is_turned: see Module.
      is_residual: whether it begins smaller by sqrt(2 * layers), since as many add up.
      part: see Module.
    """

    ours: str
    kind: str
    theirs: Mapping[str, str]
    width: str = ""
    when: str = ""
    is_turned: bool = False
    is_residual: bool = False
    part: str = ""

    def module(self, sizes: Mapping[str, int], layer: int, layers: int) -> Module:
        """The module of one layer, of so many."""
        place = f".{layer}."
        rows = tuple(sizes[letter] for letter in self.theirs.values())
        return Module(
            ours=self.ours.replace(".N.", place),
            theirs=tuple(name.replace(".N.", place) for name in self.theirs),
            kind=self.kind,
            shape=(sum(rows), sizes[self.width]) if self.width else (sum(rows),),
            rows=rows,
            deviation=DEVIATION * (2 * layers) ** -0.5 if self.is_residual else DEVIATION,
            is_turned=self.is_turned,
            grows="V" in self.theirs.values(),
            is_classes="C" in self.theirs.values(),
            part=self.part,
        )


def modules_of(config: Any, rows: Iterable[Row]) -> List[Module]:
    """The modules of a model, layer by layer.

    Args:
      config: has `sizes` (letter to number), `layers`, and what the rows' `when` names.
      rows: of its family; those of a layer stand together.
    """
    wanted = [row for row in rows if not row.when or getattr(config, row.when)]
    modules: List[Module] = []
    for in_layers, some in groupby(wanted, key=lambda row: ".N." in row.ours):
        group = list(some)
        for layer in range(config.layers if in_layers else 1):
            modules += [row.module(config.sizes, layer, config.layers) for row in group]
    return modules


class Key(NamedTuple):
    """A field of a configuration in Hugging Face's config.json.

    Attributes:
      ours: the field.
      theirs: the key.
      absent: what transformers takes where config.json leaves it out.
      is_opposite: whether theirs is true where ours is false.
    """

    ours: str
    theirs: str
    absent: Any
    is_opposite: bool = False


def check_sizes(config: Any) -> None:
    """Refuses dimensions that make no model, whatever its family.

    Raises:
      UsageError: names the flag.
    """
    sizes = ("vocab_size", "max_positions", "layers", "hidden_size", "heads")
    for name in (*sizes, "intermediate_size", "embedding_size"):
        at_least(config, name, 1)
    if config.hidden_size % config.heads:
        raise UsageError(
            f"--hidden_size={config.hidden_size} is no multiple of --heads={config.heads}: every "
            "head takes an equal share of it"
        )
    if config.activation not in ACTIVATIONS:
        raise UsageError(
            f"--activation={config.activation} is not known: {', '.join(ACTIVATIONS)} are"
        )
    share(config, "dropout")
