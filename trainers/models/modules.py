"""What encoders and decoders have in common: dimensions, and modules with weights by both names."""

from abc import ABC, abstractmethod
from dataclasses import MISSING, dataclass, fields
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from schemas.errors import UsageError
from schemas.sidecar import Schema
from trainers.data.flag_values import at_least, share

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

DIMENSIONS = (
    *("vocab_size", "max_positions", "layers", "hidden_size", "heads"),
    *("intermediate_size", "embedding_size"),
)
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


@dataclass(frozen=True)
class ModelConfig(ABC):
    """Dimensions and switches that every model has.

    Attributes:
      family: whose names and whose config.json the weights are exported with.
      vocab_size: V, rows of the embedding.
      max_positions: the longest segment it can place.
      layers: how many.
      hidden_size: H, a multiple of `heads`.
      heads: N.
      intermediate_size: I, width of the feed-forward block.
      embedding_size: E; where it is not H, a projection leads in, and one out.
      activation: of the feed-forward block, by Hugging Face's name.
      tied: the output layer is the embedding.
      dropout: on embeddings and both residual branches.
      layer_norm_epsilon: RoBERTa's, GPT-2's and OPT's 1e-5, BERT's and ELECTRA's 1e-12.
      position_offset: rows of the position table before that of position 0; RoBERTa's table starts
        after its padding id, and OPT's at 2.
    """

    family: str
    vocab_size: int
    max_positions: int
    layers: int
    hidden_size: int
    heads: int
    intermediate_size: int
    embedding_size: int
    activation: str = "gelu"
    tied: bool = True
    dropout: float = 0.0
    layer_norm_epsilon: float = 1e-5
    position_offset: int = 0

    def __post_init__(self) -> None:
        """Refuses dimensions that make no model, whatever its family."""
        for name in DIMENSIONS:
            at_least(self, name, 1)
        at_least(self, "position_offset", 0)
        if self.hidden_size % self.heads:
            raise UsageError(
                f"--hidden_size={self.hidden_size} is no multiple of --heads={self.heads}: every "
                "head takes an equal share of it"
            )
        if self.activation not in ACTIVATIONS:
            raise UsageError(
                f"--activation={self.activation} is not known: {', '.join(ACTIVATIONS)} are"
            )
        share(self, "dropout")

    @property
    def is_projected(self) -> bool:
        """Whether embeddings have another width than hidden states."""
        return self.embedding_size != self.hidden_size

    @property
    def position_rows(self) -> int:
        """Rows of the position table."""
        return self.max_positions + self.position_offset

    @property
    def defaults(self) -> Dict[str, Any]:
        """Fields that have a default, with it."""
        return {f.name: f.default for f in fields(self) if f.default is not MISSING}

    @property
    def norm_first(self) -> bool:
        """Whether a norm comes before its block, or after the residual."""
        return False

    @property
    def attention_dropout(self) -> float:
        """Dropout on the probabilities of attention."""
        return self.dropout

    def attention_scale(self, layer: int) -> float:
        """What the logits of attention in a layer (from 0) are multiplied with."""
        return (self.hidden_size // self.heads) ** -0.5

    @property
    @abstractmethod
    def modules(self) -> List[Module]:
        """All that have weights."""

    @property
    @abstractmethod
    def base(self) -> str:
        """What names begin with in files; left out where the model was saved without its head."""

    @property
    @abstractmethod
    def doubles(self) -> Dict[str, str]:
        """Tensors of theirs that files may hold and no model reads -> which of ours they repeat."""

    @property
    def other_heads(self) -> Tuple[str, ...]:
        """Beginnings of names of heads that this model has no use for."""
        return ()

    @abstractmethod
    def to_json(
        self, special_ids: Mapping[str, int], prefix_ids: Sequence[int] = ()
    ) -> Dict[str, Any]:
        """The config.json that transformers opens as this model; roles to ids are the contract's.

        `prefix_ids` are what texts begin with, where the model goes on with texts.
        """

    @classmethod
    @abstractmethod
    def find_published(
        cls, found: Mapping[str, Any], *, place: str
    ) -> Tuple["ModelConfig", Tuple[int, ...], Tuple[int, ...]]:
        """What a config.json describes: the model, and what texts begin with and end with."""

    def check_fits(self, schema: Schema, *, place: str, shards: str) -> None:
        """Refuses a model, which comes from `place`, that cannot read the rows of --shards."""
        if self.max_positions < schema.max_length:
            raise UsageError(
                f"{place} places {self.max_positions} tokens, fewer than the {schema.max_length} "
                f"of a row of {shards}: build a set with --max_length={self.max_positions}, or "
                "take a model of more --max_positions"
            )
        if self.vocab_size < schema.vocab_size:
            raise UsageError(
                f"{place} has a vocabulary of {self.vocab_size:,}, but the rows of {shards} were "
                f"written with one of {schema.vocab_size:,}: build a set with the model's tokenizer"
            )
