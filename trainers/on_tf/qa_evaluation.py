"""`--evaluate_checkpoints`: the answers of a run's checkpoints, scored.

OUTPUT/evaluation/SET-SPLIT/predictions-STEP.json      {id: answer}, SQuAD's own format
OUTPUT/evaluation/SET-SPLIT/scores.jsonl, scores.png   a line, and a point, for each checkpoint
"""

import json
from pathlib import Path

from schemas.errors import DataError, UsageError
from schemas.terminal import say
from trainers.data.batches import BatchReader
from trainers.data.mixture import open_shards
from trainers.data.shards_flag import shards_name
from trainers.measures.questions import write_predictions
from trainers.measures.squad_pictures import draw_scores, score_table
from trainers.models.set_tokenizer import kept_schema
from trainers.on_tf.checkpoints import Checkpoints
from trainers.on_tf.gpt2 import build_gpt2
from trainers.on_tf.gpt2_config import Gpt2Config
from trainers.on_tf.qa_config import QaConfig, check_length, check_questions
from trainers.on_tf.qa_learner import QaLearner
from trainers.on_tf.qa_run import scoring_of
from trainers.on_tf.step import Steps
from trainers.on_tf.strategy import choose_strategy, set_precision
from trainers.run.journal import ProgressLine
from trainers.run.run_directory import read_settings

Scores = dict[str, float]


def evaluate_checkpoints(config: QaConfig) -> list[Scores]:
    """Scores each checkpoint that is asked for, prints a table and writes the files.

    Returns:
      For each checkpoint, in their order, "step" and what `QaLearner.measures` gives.

    Raises:
      UsageError: there is no such run or checkpoint, or the questions are put in another way.
      DataError: the split has no questions, or something cannot be read or written.
    """
    output, split = config.run_directory, config.validation_split
    settings = read_settings(output, config.entry)
    try:
        sizes = Gpt2Config(**settings["model"])
    except TypeError as error:
        raise UsageError(f"--output={output} holds a run of another trainer") from error
    place = config.shards or str(settings["config"]["shards"])
    shards = open_shards(
        place, verify=config.verify, cache=config.cache, follow_links=config.follow_links
    )
    check_questions(place, shards.schema, kept_schema(output))
    check_length(sizes, shards.schema, place)
    if not shards.rows(split):
        raise shards.no_rows(split)
    folder = output / "evaluation" / f"{shards_name(place)}-{split}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        found = _evaluated(config, sizes, shards, folder)
        lines = "".join(json.dumps(scores) + "\n" for scores in found)
        (folder / "scores.jsonl").write_text(lines, encoding="utf-8")
        draw_scores(found, str(folder / "scores.png"), f"{output} on {split} of {place}")
    except OSError as error:
        raise DataError(f"{folder}: {error}") from error
    say(f"{found[0]['total']:,} questions of {split} of {place}, by checkpoint:")
    say(score_table(found))
    say(f"Scores, their curve and the predictions lie in {folder}")
    return found


def _evaluated(
    config: QaConfig, sizes: Gpt2Config, shards: BatchReader, folder: Path
) -> list[Scores]:
    strategy, line = choose_strategy(config), ProgressLine()
    set_precision(config, strategy)
    with strategy.scope():
        model = build_gpt2(sizes)
    checkpoints = Checkpoints(config.run_directory, config.keep_checkpoints, model)
    learner = QaLearner(model, shards.schema, scoring_of(config, shards))
    steps = Steps(
        learner,
        None,
        strategy,
        batch_size=config.batch_size,
        jit_compile=config.jit_compile,
    )
    assert config.evaluate_checkpoints is not None
    names = [config.evaluate_checkpoints]
    if names == ["all"]:
        kept = {*checkpoints.steps, checkpoints.best} - {None}
        names = [str(step) for step in sorted(kept)] or ["last"]  # which says that there is none
    found = []
    for name in names:
        step = checkpoints.load_weights(name)
        measures = learner.measures(steps.evaluated(shards, config.validation_split))
        line.say(f"step {step}: {learner.said(measures)}")
        write_predictions(str(folder / f"predictions-{step}.json"), learner.predictions)
        found.append({"step": step, **measures})
    return found
