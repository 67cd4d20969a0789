"""Settings of the causal language model's trainer, and the decoder that they and the contract make.

Standard library only, so that --help and refusals cost no import of JAX.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from schemas.errors import UsageError
from schemas.set_cache import CACHE_GIGABYTES, Cache, default_directory
from schemas.sidecar import Schema
from trainers.models.hf_files import read_directory
from trainers.on_flax.decoder_config import DecoderConfig
from trainers.on_flax.decoder_files import FAMILIES, decoder_config
from trainers.on_flax.run_config import Plan, RunConfig
from trainers.on_flax.sampling import Sampling
from trainers.run.flags import at_least, check_task, on_disk

# Of GPT-2's own sizes, base is 124M; tiny and small as the encoder's.
PRESETS: dict[str, dict[str, Any]] = {
    "tiny": dict(layers=2, hidden_size=128, heads=2, intermediate_size=512),
    "small": dict(layers=4, hidden_size=512, heads=8, intermediate_size=2048),
    "base": dict(layers=12, hidden_size=768, heads=12, intermediate_size=3072),
    "medium": dict(layers=24, hidden_size=1024, heads=16, intermediate_size=4096),
}
ACTIVATION_OF = {"gpt2": "gelu_new", "opt": "relu"}
_SHAPE = ("layers", "hidden_size", "heads", "intermediate_size", "embedding_size")
_OF_THE_MODEL = (*_SHAPE, "max_positions", "activation", "norm", "tied")


@dataclass(frozen=True)
class ClmConfig(RunConfig):
    """Trains a causal language model on a shard set: GPT-2 or OPT, from scratch or fine-tuned.

    What is not given here (vocabulary, row length, special tokens) comes from the set's contract.
    --config=FILE.yaml holds flags; those of the command line win.

    With --evaluate_only it measures a checkpoint instead, with --generate=TEXT it goes on with the
    text: `--evaluate_only --help` and `--generate=x --help` list their flags.
    """

    entry: ClassVar[str] = "flax_clm"
    task: ClassVar[str] = "clm"

    family: Literal["gpt2", "opt"] = "gpt2"
    """Which decoder; with --init_from its config.json says it, and all that follows."""
    model: Literal["tiny", "small", "base", "medium"] = "small"
    """Dimensions to start from; each flag below replaces one of them."""
    layers: int | None = None
    """Decoder layers."""
    hidden_size: int | None = None
    """Width of the hidden states."""
    heads: int | None = None
    """Attention heads; divides hidden_size."""
    intermediate_size: int | None = None
    """Width of the feed-forward block."""
    embedding_size: int | None = None
    """Width of the embeddings, opt only. None: hidden_size."""
    activation: str | None = None
    """Of the feed-forward block. None: gelu_new for gpt2, relu for opt."""
    norm: Literal["pre", "post"] | None = None
    """LayerNorm before each block, or after it (opt only, as OPT-350m). None: pre."""
    tied: bool | None = None
    """Whether the output layer is the embedding. None: it is."""
    max_positions: int | None = None
    """Longest segment the model can place, at least the rows' length. None: that length."""
    vocab_size: int | None = None
    """Only a check: must be the contract's."""


@dataclass(frozen=True)
class EvaluateConfig:
    """Measures a checkpoint on a split: loss, perplexity, bits per byte, and how fast it runs."""

    task: ClassVar[str] = "clm"

    shards: str
    """Directory that build_shards wrote, or its URL; several with weights: DIR:0.7,DIR:0.3."""
    checkpoint: str
    """A run's output directory (its newest checkpoint), OUTPUT/checkpoints/N, or an exported or
    published directory."""
    evaluate_only: bool = True
    """Says that nothing is trained."""
    split: str = "validation"
    """Split to evaluate on."""
    batch_size: int = 32
    """Rows at once, over all devices."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Of the computation. auto: bfloat16 on accelerators, float32 on CPU."""
    verify: bool = True
    """Check the sha256 of every file of the set first."""
    follow_links: bool = False
    """Open files of the set that are links out of its directory, too."""
    cache_dir: str | None = None
    """Where files of sets on gs:// or s3:// are kept. None: textmill in ~/.cache."""
    cache_gigabytes: float = CACHE_GIGABYTES
    """That all sets in it may take; the least recently used files go first."""
    report: str | None = None
    """A file that gets the measurements as one more line of JSON."""

    def __post_init__(self) -> None:
        """Refuses values that cannot be meant."""
        at_least(self, "batch_size", 1)
        on_disk(self, "cache_dir")
        _ = self.cache  # refuses a size that cannot be
        if not self.evaluate_only:
            raise UsageError("--no_evaluate_only: leave it out to train")

    @property
    def cache(self) -> Cache:
        """For files of sets on stores."""
        return Cache(self.cache_dir or default_directory(), self.cache_gigabytes)


@dataclass(frozen=True)
class GenerateConfig:
    """Goes on with a text."""

    generate: str
    """The text to go on with."""
    checkpoint: str
    """A run's output directory (its newest checkpoint), OUTPUT/checkpoints/N, or an exported or
    published directory."""
    max_new_tokens: int = 64
    """At most; an end-of-text token ends a sample before."""
    temperature: float = 0.0
    """Of the softmax that tokens are drawn from; 0 takes the likeliest each time."""
    top_k: int = 0
    """Draw from so many likeliest tokens; 0 draws from all."""
    top_p: float = 1.0
    """Draw from the likeliest tokens that have this probability together."""
    samples: int = 1
    """Texts to draw, in one batch."""
    seed: int = 0
    """Of the draws."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Of the computation. auto: bfloat16 on accelerators, float32 on CPU."""

    def __post_init__(self) -> None:
        """Refuses values that cannot be meant."""
        at_least(self, "samples", 1)
        at_least(self, "seed", 0)
        self.sampling()
        if self.samples > 1 and not self.temperature:
            raise UsageError(
                f"--samples={self.samples} would all be the same text: give --temperature too"
            )

    def sampling(self, **changes: Any) -> Sampling:
        """How tokens are chosen, with some settings changed.

        Raises:
          UsageError: they cannot be meant.
        """
        rule = Sampling(self.max_new_tokens, self.temperature, self.top_k, self.top_p)
        return replace(rule, **changes)


@dataclass(frozen=True)
class ClmPlan(Plan):
    """A run of this trainer.

    Attributes:
      config: the settings.
      model: the decoder.
      published: tensors to begin with, by Hugging Face's names; None begins with fresh ones.
      published_vocabulary: rows that their embedding has.
    """

    config: ClmConfig
    model: DecoderConfig
    published: Mapping[str, Any] | None = None
    published_vocabulary: int = 0


def _fresh_model(config: ClmConfig, schema: Schema) -> DecoderConfig:
    sizes = dict(PRESETS[config.model])
    sizes |= {name: getattr(config, name) for name in _SHAPE if getattr(config, name) is not None}
    norm_first = config.norm != "post"
    return DecoderConfig(
        family=config.family,
        vocab_size=schema.vocab_size,
        max_positions=config.max_positions or schema.max_length,
        activation=config.activation or ACTIVATION_OF[config.family],
        norm_first=norm_first,
        final_norm=norm_first,
        tied=config.tied is not False,
        dropout=config.dropout,
        **{"embedding_size": sizes["hidden_size"], **sizes},
    )


def check_fits(model: DecoderConfig, schema: Schema, *, shards: str, place: str) -> None:
    """Refuses a model that cannot read a set's rows.

    Args:
      model: with its own vocabulary and positions.
      schema: of the set.
      shards: what --shards says.
      place: where the model comes from, such as "--checkpoint=DIR".

    Raises:
      UsageError: rows are too long or ids too large.
    """
    if model.max_positions < schema.max_length:
        raise UsageError(
            f"{place} places {model.max_positions} tokens, fewer than the {schema.max_length} of a "
            f"row of {shards}: build a set with --max_length={model.max_positions}"
        )
    if model.vocab_size < schema.vocab_size:
        raise UsageError(
            f"{place} has a vocabulary of {model.vocab_size:,}, but the rows of {shards} were "
            f"written with one of {schema.vocab_size:,}: build a set with the model's tokenizer"
        )


def plan_clm(config: ClmConfig, schema: Schema, *, train_rows: int) -> ClmPlan:
    """Settings and contract together.

    Args:
      config: what the user asked for.
      schema: what the shards are.
      train_rows: rows of the training split.

    Raises:
      UsageError: they do not go together; names the value and the remedy.
      DataError: there is nothing to train on, or published weights cannot be read.
    """
    check_task(config.task, schema, config.shards)
    if config.vocab_size not in (None, schema.vocab_size):
        raise UsageError(
            f"--vocab_size={config.vocab_size}, but the rows of {config.shards} were written with "
            f"a vocabulary of {schema.vocab_size}: leave the flag out, or build the set with the "
            "other tokenizer"
        )
    published, rows = None, 0
    if config.init_from is None:
        place = f"--max_positions={config.max_positions}:"
        model = _fresh_model(config, schema)
    else:
        place = f"--init_from={config.init_from}"
        given = [name for name in _OF_THE_MODEL if getattr(config, name) is not None]
        if given:
            raise UsageError(f"{place} says what --{given[0]} is: leave one of them out")
        found, published = read_directory(config.init_from, model_types=FAMILIES)
        model = decoder_config(found, dropout=config.dropout, place=place)
        rows = model.vocab_size
        model = replace(model, vocab_size=max(rows, schema.vocab_size))
    check_fits(model, schema, shards=config.shards, place=f"{place} the model")
    return ClmPlan(
        config=config,
        schema=schema,
        model=model,
        steps=config.planned_steps(train_rows),
        output=config.output_directory(config.model),
        published=published,
        published_vocabulary=rows,
    )
