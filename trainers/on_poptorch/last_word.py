"""What a run leaves at its end: the curve, published weights, and where all of it lies."""

from typing import Any, Dict

from schemas.terminal import say
from trainers.models.encoder import to_config_json
from trainers.models.hf_files import tokenizer_settings, write_directory
from trainers.models.set_tokenizer import kept_tokenizer
from trainers.on_poptorch.checkpoints import BEST, Checkpoints
from trainers.on_poptorch.config import Plan
from trainers.on_poptorch.weights import to_hugging_face
from trainers.run.journal import METRICS, draw_curve, read_metrics

CURVE = "loss.png"
_SAID = {"loss": "loss", "accuracy": "accuracy", "auc": "AUC", "f1": "F1"}


def say_last_word(
    plan: Plan, checkpoints: Checkpoints, step: int, *, took: str, is_over: bool
) -> None:
    """Draws the curve, exports, and says what was made.

    Args:
      plan: of the run.
      checkpoints: of the run.
      step: steps done.
      took: the time, in words.
      is_over: whether there is nothing more to train.

    Raises:
      UsageError, DataError: the weights cannot be exported.
    """
    config, output = plan.config, plan.output
    lines = read_metrics(str(output / METRICS))
    draw_curve(lines, str(output / CURVE), f"{config.shards}, classification", unit="nats a row")
    say(f"{step} steps done; this run took {took}.")
    trained = [line["loss"] for line in lines if line["kind"] == "train"]
    if trained:
        say(f"  training    loss {trained[0]:.4f} at first, {trained[-1]:.4f} at last")
    evaluated = [line for line in lines if line["kind"] == "evaluation"]
    if evaluated:
        say(f"  last        step {evaluated[-1]['step']}: {told(evaluated[-1])}")
    best = checkpoints.best()
    if best is not None:
        say(f"  best        step {best['step']}: {told(best['measures'])}")
        say(f"  best        {output / BEST}")
    say(f"  checkpoint  {checkpoints.path(step)}")
    say(f"  metrics     {output / METRICS}")
    say(f"  loss curve  {output / CURVE}")
    if not is_over:
        say(f"  to go on    {config.command(resume=True, stop_after=None)}")
    elif config.export is not None:
        state = best or checkpoints.restore(step)
        _export(plan, config.export, state)
        say(f"  exported    {config.export}: the weights after step {state['step']}")


def _export(plan: Plan, directory: str, state: Dict[str, Any]) -> None:
    special_ids, model = plan.schema.special_ids, plan.model
    tokenizer = kept_tokenizer(plan.output)
    weights = {name: value.float().numpy() for name, value in state["model"].items()}
    write_directory(
        directory,
        to_config_json(model, special_ids),
        to_hugging_face(weights, model),
        tokenizer,
        tokenizer_settings(tokenizer, special_ids, max_length=model.max_positions),
    )


def told(measures: Dict[str, Any]) -> str:
    """Measures in a few words: "loss 0.4000, accuracy 85.00%"."""
    words = []
    for name, called in _SAID.items():
        if name in measures:
            form = ".2%" if name == "accuracy" else ".4f"
            words.append(f"{called} {measures[name]:{form}}")
    return ", ".join(words)
