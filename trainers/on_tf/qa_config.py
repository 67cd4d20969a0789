"""Settings of tf_qa: what the command line gives and what the contract decides.

Standard library only, so that --help and refusals cost no import of TensorFlow.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

from schemas.errors import UsageError
from schemas.sidecar import Schema
from trainers.models.hf_files import read_directory, refuse_existing
from trainers.on_tf.gpt2_config import PRESETS, Gpt2Config, from_config_json
from trainers.on_tf.run_config import RunConfig
from trainers.run.flags import at_least, check_task, share

# What rows must have in common for a model trained on one set to be asked the questions of another.
_SAME_PARAMETERS = ("qa_form", "qa_template", "bos")


@dataclass(frozen=True, kw_only=True)
class QaConfig(RunConfig):
    """Trains a GPT-2 to answer questions on a shard set, scores its answers, or asks it one.

    What is not given here (vocabulary, row length, attention, longest answer) comes from the set's
    contract. --config=FILE.yaml holds flags; those of the command line win.
    """

    entry: ClassVar[str] = "tf_qa"
    task: ClassVar[str] = "qa"
    same_settings: ClassVar[tuple[str, ...]] = (*RunConfig.same_settings, "score")

    model: Literal["tiny", "small", "gpt2"] = "tiny"
    """Dimensions to start from without --init_from; each flag below replaces one of them."""
    layers: int | None = None
    """Decoder layers."""
    hidden_size: int | None = None
    """Width of the hidden states."""
    heads: int | None = None
    """Attention heads; divides hidden_size."""
    intermediate_size: int | None = None
    """Width of the feed-forward block. None: 4 times hidden_size."""
    max_positions: int | None = None
    """Longest row the model can place, at least the set's. None: that length."""
    dropout: float = 0.1
    """On embeddings, attention probabilities and residual branches."""
    score: bool = True
    """Answer the questions in every evaluation: the best checkpoint is that of the highest F1.
    --no_score measures the loss alone, which is quicker, and keeps the lowest."""
    squad_version: Literal["auto", "1.1", "2.0"] = "auto"
    """Of the scores. auto: 2.0 if any question cannot be answered."""

    checkpoint: str = "best"
    """Which weights to export: best, last, or a step's number."""
    evaluate_checkpoints: str | None = None
    """Do not train: score the answers of the run in --output by its weights: best, last, of a
    step's number, or all (--keep_checkpoints says how many there are). The questions are those of
    --validation_split of --shards, or of the set it was trained on. A table, a plot, and the
    predictions in SQuAD's format go to OUTPUT/evaluation."""
    saved_model: str | None = None
    """What --export_saved_model wrote, to ask it."""
    ask: str | None = None
    """Do not train: a question for --saved_model, about --context."""
    context: str | None = None
    """The text in which the answer stands."""

    def __post_init__(self) -> None:
        """Refuses values that cannot be meant."""
        super().__post_init__()
        for name in ("layers", "hidden_size", "heads", "intermediate_size", "max_positions"):
            at_least(self, name, 1)
            if getattr(self, name) is not None and self.init_from:
                raise UsageError(
                    f"--{name}={getattr(self, name)}, but the weights of --init_from have their "
                    "own dimensions: leave one of them out"
                )
        share(self, "dropout")
        if self.ask is not None or self.context is not None or self.saved_model is not None:
            if None in (self.ask, self.context, self.saved_model):
                raise UsageError(
                    "a question takes --ask=QUESTION, --context=TEXT and --saved_model=DIR, which "
                    "--export_saved_model wrote: give all three"
                )
        elif self.evaluate_checkpoints is not None:
            if self.output is None:
                raise UsageError("--evaluate_checkpoints needs the run to score: give --output")
        elif not self.shards:
            raise UsageError("give the directory of a shard set with --shards")
        for flag in ("export", "export_saved_model"):
            if getattr(self, flag) is not None:
                refuse_existing(getattr(self, flag), flag=f"--{flag}")

    @property
    def run_directory(self) -> Path:
        """Where the run lies."""
        return self.output_directory(self.model)


@dataclass(frozen=True)
class QaPlan:
    """A run, once the settings have met the contract.

    Attributes:
      config: the settings.
      schema: the contract.
      model: the model's dimensions.
      steps: optimizer steps of the whole schedule.
    """

    config: QaConfig
    schema: Schema
    model: Gpt2Config
    steps: int


def plan_run(config: QaConfig, schema: Schema, *, train_rows: int) -> QaPlan:
    """Settings and contract together.

    Raises:
      UsageError: they do not go together; names the value and the remedy.
      DataError: there is nothing to train on, or the weights cannot be read.
    """
    check_task(config.task, schema, config.shards)
    model = model_for(config, schema)
    return QaPlan(config, schema, model, config.planned_steps(train_rows))


def check_questions(place: str, schema: Schema, trained: Schema) -> None:
    """Refuses questions that are put in another way than those a model was trained on.

    Args:
      place: of the questions.
      schema: of their set.
      trained: of the set that the model was trained on.
    """
    check_task(QaConfig.task, schema, place)
    differing = [
        f"{name} is {schema.parameters[name]!r} and was {trained.parameters[name]!r}"
        for name in _SAME_PARAMETERS
        if schema.parameters[name] != trained.parameters[name]
    ]
    if schema.tokenizer_sha256 != trained.tokenizer_sha256:
        differing.append("the tokenizer is another")
    if differing:
        raise UsageError(
            f"{place}: its questions are not put as those the run was trained on: "
            f"{'; '.join(differing)}. Build the set with the tokenizer and flags of the other"
        )


def model_for(config: QaConfig, schema: Schema) -> Gpt2Config:
    """The model that these settings make of this contract.

    Raises:
      UsageError: the rows are too long for it.
    """
    if config.init_from is None:
        sizes: dict[str, Any] = dict(PRESETS[config.model])
        sizes.update({n: getattr(config, n) for n in sizes if getattr(config, n) is not None})
        model = Gpt2Config(
            vocab_size=schema.vocab_size,
            max_positions=config.max_positions or schema.max_length,
            intermediate_size=config.intermediate_size or 4 * sizes["hidden_size"],
            dropout=config.dropout,
            **sizes,
        )
    else:
        found, _ = read_directory(config.init_from, model_types=("gpt2",))
        place = f"--init_from={config.init_from}"
        model = from_config_json(found, dropout=config.dropout, place=place)
        # A vocabulary that grew gets new rows; rows beyond it are never looked up.
        model = replace(model, vocab_size=max(model.vocab_size, schema.vocab_size))
    check_length(model, schema, config.shards, new=config.init_from is None)
    return model


def check_length(model: Gpt2Config, schema: Schema, place: str, *, new: bool = False) -> None:
    """Refuses rows that are longer than what a model can place."""
    if model.max_positions < schema.max_length:
        raise UsageError(
            f"the model places {model.max_positions} tokens, fewer than the {schema.max_length} "
            f"of a row of {place}: build a set with --max_length={model.max_positions}"
            + (", or raise --max_positions" if new else "")
        )
