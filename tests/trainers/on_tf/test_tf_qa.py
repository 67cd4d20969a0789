"""Runs of tf_qa: packing, scores, questions of other datasets, and exports.

tests/trainers/run, flags and use/test_uses.py test the code that all five trainers share.
"""

import json

import numpy as np
import pytest

from tests.tools.model_cases import compute_apart
from tests.tools.question_factory import schema_of, write_qa_set
from tests.tools.run_reading import read_metrics
from tests.tools.shard_factory import tokenizer_json
from textmill.pipelines.encoding.tokenizer import LoadedTokenizer
from textmill.pipelines.tasks.qa import Qa
from textmill.pipelines.tasks.questions import QuestionTemplate
from textmill.schemas.errors import UsageError
from textmill.trainers import evaluate, export_model
from textmill.trainers.data.shard_set import ShardSet
from textmill.trainers.flags.command_line import make_flags
from textmill.trainers.models.model_config import ModelConfig
from textmill.trainers.models.plan_model import plan_model
from textmill.trainers.on_tf.backend import tf
from textmill.trainers.on_tf.tf_decoder import Decoder, QaObjective, logits_by, sums_where_counted
from textmill.trainers.tasks.qa import QaTask
from textmill.trainers.tf_qa import TfQaFlags, main

WORDS = LoadedTokenizer(tokenizer_json(60))  # <s> <pad> </s> <unk> <mask> w5 w6 ...
EOS, LENGTH, NEW = 2, 24, 4
TASK = Qa(
    qa_template=QuestionTemplate("w5 {question} w6 {context} w7 {answer}"),
    qa_form="prefix",
    max_question_length=3,
    max_answer_length=NEW,
)
RUN = (
    "--layers=1",
    "--hidden_size=16",
    "--heads=2",
    "--batch_size=8",
    "--steps=60",
    "--learning_rate=0.03",
    "--evaluate_every=20",
    "--checkpoint_every=20",
    "--keep_checkpoints=9",
    "--no_jit_compile",
    "--seed=1",
)


def questions(number, first, *, impossible=False):
    """w10 stands for the context's last word, w11 for a word that is not there."""
    random = np.random.default_rng(first)
    asked = []
    for name in range(first, first + number):
        words = [f"w{word}" for word in random.integers(20, 60, random.integers(3, 9))]
        context = " ".join(words)
        answers = [(words[-1], len(context) - len(words[-1]))]
        if impossible and name % 3 == 0:
            asked.append(("w11", context, [], str(name)))
        else:
            asked.append(("w10", context, answers, str(name)))
    return asked


SCHEMA = schema_of(TASK, WORDS, LENGTH)


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    directory = tmp_path_factory.mktemp("sets") / "asked"
    asked = {"train": questions(60, 0, impossible=True), "validation": questions(9, 100)}
    write_qa_set(directory, asked, TASK, WORDS, LENGTH)
    return directory


@pytest.fixture(scope="module")
def trained(shards, tmp_path_factory):
    """A run's folder: `run`, `exported`, `saved`; and how often its steps were traced."""
    folder = tmp_path_factory.mktemp("trained")
    counts = {"sums": 0, "outputs": 0}

    def counting(name, method):
        def call(self, *arguments):
            counts[name] += 1
            return method(self, *arguments)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in counts:
            patch.setattr(QaObjective, name, counting(name, getattr(QaObjective, name)))
        main(
            [
                f"--shards={shards}",
                f"--output={folder / 'run'}",
                *RUN,
            ]
        )
    export = [f"--output={folder / 'exported'}", f"--export_saved_model={folder / 'saved'}"]
    export_model.main([str(folder / "run"), "--checkpoint=last", *export])
    (folder / "traces.json").write_text(json.dumps(counts))
    return folder


def test_a_run_learns_and_is_compiled_once(trained, shards):
    lines = read_metrics(str(trained / "run" / "metrics.jsonl"))
    evaluations = {line["step"]: line for line in lines if line["kind"] == "evaluation"}
    assert list(evaluations) == [20, 40, 60]
    assert evaluations[60]["loss"] < evaluations[20]["loss"] < 4
    assert json.loads((trained / "traces.json").read_text()) == {"sums": 1, "outputs": 1}
    assert {line["step"] for line in lines if line["kind"] == "train"} == set(range(1, 61))
    for name in ("loss.png", "predictions.json", "schema.json", "tokenizer.json"):
        assert (trained / "run" / name).stat().st_size
    predictions = json.loads((trained / "run" / "predictions.json").read_text())
    assert set(predictions) == {str(name) for name in range(100, 109)}
    with pytest.raises(
        UsageError, match=f"--export_saved_model={trained / 'saved'} exists already"
    ):
        main([f"--shards={shards}", f"--export_saved_model={trained / 'saved'}"])


def test_checkpoints_score_as_they_did_in_training(trained, shards, capsys):
    run = trained / "run"
    # Compiled by XLA.
    evaluate.main([str(run), "--checkpoint=all", "--batch_size=4", "--jit_compile"])
    [folder] = (run / "evaluation").glob("asked-validation-*")
    scores = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    lines = read_metrics(str(run / "metrics.jsonl"))
    due = [line for line in lines if line["kind"] == "evaluation"]
    assert [line["step"] for line in scores] == [20, 40, 60]
    for found, then in zip(scores, due, strict=True):
        assert then.pop("kind") == "evaluation" and found == pytest.approx(then, rel=1e-4)
    last = json.loads((folder / "60" / "predictions.json").read_text())
    assert last == json.loads((run / "predictions.json").read_text())
    printed = [line.split() for line in capsys.readouterr().out.splitlines()]
    head = printed.index(["step", "loss", "exact", "match", "F1"])
    assert [line[0] for line in printed[head + 1 : head + 4]] == ["20", "40", "60"]
    assert printed[head + 3][-1] == f"{scores[2]['f1']:.2f}"
    assert (folder / "scores.png").stat().st_size


def test_questions_of_another_set(trained, shards, tmp_path, capsys):
    write_qa_set(
        tmp_path / "other", {"validation": questions(6, 0, impossible=True)}, TASK, WORDS, LENGTH
    )
    use = [str(trained / "run"), "--batch_size=4", "--no_jit_compile"]
    evaluate.main([*use, f"--shards={tmp_path / 'other'}", "--checkpoint=40"])
    assert "exact, no answer" in capsys.readouterr().out
    with pytest.raises(UsageError, match="--validation_split=train: .*--no_score"):
        evaluate.main([*use, f"--shards={shards}", "--validation_split=train"])


@pytest.mark.slow
def test_both_exports_give_the_answers_of_the_run(trained, shards, tmp_path):
    """A SavedModel, and weights that PyTorch opens."""
    rows = ShardSet(str(shards)).read("validation", np.arange(9))
    ids, lengths = (rows[name].astype(np.int32) for name in ("input_ids", "prompt_length"))
    prompts = ids[:, : lengths.max()]
    served = tf.saved_model.load(str(trained / "saved")).signatures["serving_default"]
    found = served(input_ids=tf.constant(prompts), prompt_lengths=tf.constant(lengths))
    words = [
        " ".join(f"w{word}" for word in ids[:length] if word > 4)
        for ids, length in zip(
            found["answer_ids"].numpy(), found["answer_lengths"].numpy(), strict=True
        )
    ]
    predictions = json.loads((trained / "run" / "predictions.json").read_text())
    assert sorted(words) == sorted(predictions.values()) and any(words)
    (tmp_path / "run").symlink_to(trained / "exported")
    asked = {
        "prompts": prompts.astype(np.int64),
        "lengths": lengths,
        "new_tokens": np.array(NEW),
        "is_prefix": np.array(True),
    }
    given = {"input_ids": ids.astype(np.int64), "labels": ids, **asked}
    theirs = compute_apart(tmp_path, {"run": (None, "CausalLM")}, {"run": given})["run"]
    np.testing.assert_array_equal(found["answer_ids"], theirs["answers"])


def test_without_a_token_to_learn_there_is_no_loss():
    """Which 0 would say were the best of all."""
    sums = {name: np.zeros(8, np.float32) for name in ("loss", "correct", "counted")}
    task = QaTask(make_flags(TfQaFlags, shards="x"), SCHEMA)
    found = task.measure(iter([({"row_weights": np.ones(8)}, sums)]))
    assert found is not None and np.isnan(found["loss"]) and np.isnan(found["accuracy"])


def test_an_opt_is_refused_in_words(tmp_path):
    sizes = {"layers": 1, "heads": 2, "vocab_size": 60, "max_positions": 24}
    widths = dict.fromkeys(("hidden_size", "intermediate_size", "embedding_size"), 16)
    with pytest.raises(UsageError, match="of family 'opt'.*give weights of a gpt2"):
        Decoder(
            ModelConfig.new(family="opt", activation="relu", position_offset=2, **sizes, **widths)
        )
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "opt"}))
    with pytest.raises(UsageError, match="model_type 'opt', and this trainer accepts gpt2"):
        plan_model(make_flags(TfQaFlags, shards="x", init_from=str(tmp_path)), SCHEMA)


@pytest.mark.parametrize("share", [0.0, 0.1, 1.0])
def test_sums_where_tokens_count_are_those_of_all_logits(share):
    """Losses, hits and gradients equal those of a whole row's logits to float32 rounding."""
    random = np.random.default_rng(0)
    x, table = (tf.constant(random.normal(size=s), tf.float32) for s in ((3, 37, 8), (50, 8)))
    target = tf.constant(random.integers(0, 50, (3, 37)), tf.int32)
    weight = tf.cast(random.random((3, 37)) < share, tf.float32)

    def of_all(x, table, target, weight):
        logits = logits_by(x, table)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(target, logits)
        hits = tf.cast(tf.argmax(logits, -1, output_type=tf.int32) == target, tf.float32)
        rows = [tf.reduce_sum(weight * each, axis=1) for each in (losses, hits)]
        return tf.reduce_sum(rows[0]), *rows

    found = []
    for sums_of in (of_all, sums_where_counted):
        with tf.GradientTape() as tape:
            tape.watch((x, table))
            sums = tf.function(sums_of)(x, table, target, weight)
        found.append((*sums, *tape.gradient(sums[0], (x, table))))
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
