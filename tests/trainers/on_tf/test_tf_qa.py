"""tf_qa: parity with transformers' GPT-2, packing, decoding, and whole runs from the entry.

Legend: B rows, L tokens a row, N prompts, P places of a prompt, T new tokens, V vocabulary.
"""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pipelines.encoding.tokenizer import LoadedTokenizer
from pipelines.tasks.qa import Qa
from schemas.errors import DataError, UsageError
from tests.tools.gpt2_oracle import EPSILON, LEARNING_RATE
from tests.tools.places import ROOT
from tests.tools.question_factory import schema_of, write_qa_set
from tests.tools.run_reading import read_metrics
from tests.tools.shard_factory import tokenizer_json, write_mlm_set
from trainers import use_model
from trainers.data.adapters import one_segment_a_row
from trainers.data.shard_set import ShardSet
from trainers.flags.command_line import make_flags
from trainers.metrics.attention import AHEAD, verify_attention
from trainers.models.hf_files import read_directory
from trainers.models.model_config import ModelConfig
from trainers.models.plan_model import plan_model
from trainers.models.weights import fresh, from_layout, from_published, to_published
from trainers.on_tf.backend import keras, tf
from trainers.on_tf.tf_decoder import Decoder, QaObjective, answer_prompts
from trainers.on_tf.tf_layers import KERAS, fill, name_variables, read
from trainers.on_tf.tf_program import make_optimizer
from trainers.run.checkpoints import read_weights
from trainers.run.journal import MetricsFile
from trainers.tasks.qa import QaTask
from trainers.tf_qa import TfQaFlags, main

WORDS = LoadedTokenizer(tokenizer_json(60))  # <s> <pad> </s> <unk> <mask> w5 w6 ...
EOS, LENGTH, NEW = 2, 24, 4
TASK = Qa(
    qa_template="w5 {question} w6 {context} w7 {answer}",
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
    """w10 asks for the context's last word, w11 for nothing that is there."""
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


# Parity with PyTorch


SMALL = {"vocab_size": 60, "n_positions": LENGTH, "n_layer": 2, "n_embd": 16, "n_head": 2}
CASES = {
    "as GPT-2": {**SMALL, "eos_token_id": EOS},
    "every switch": {
        **SMALL,
        "eos_token_id": EOS,
        "n_inner": 24,
        "activation_function": "relu",
        "layer_norm_epsilon": 1e-3,
        "scale_attn_by_inverse_layer_idx": True,
        "tie_word_embeddings": False,
    },
    "packed prefix": {
        **SMALL,
        "eos_token_id": EOS,
        "scale_attn_weights": False,
        "activation_function": "gelu",
    },
    "trained": None,  # the export of a run
}


def hand_made_mask(segments, prefix):
    """Who attends whom, one pair after another."""
    rows, length = segments.shape
    allowed = np.zeros((rows, length, length), bool)
    for row in range(rows):
        for query in range(length):
            for key in range(length):
                same = segments[row, query] == segments[row, key]
                allowed[row, query, key] = same and (key <= query or bool(prefix[row, key]))
    return allowed


def hand_made_positions(segments):
    found = np.zeros_like(segments)
    for row in range(len(segments)):
        for place in range(1, segments.shape[1]):
            if segments[row, place] == segments[row, place - 1]:
                found[row, place] = found[row, place - 1] + 1
    return found


def case_batch(name):
    """Rows and prompts for a case: three rows of 24 tokens, in one segment or several."""
    random = np.random.default_rng(sorted(CASES).index(name))
    ids = random.integers(5, 60, (3, LENGTH))
    segments = np.ones((3, LENGTH), int)
    weights = (random.random((3, LENGTH)) < 0.4).astype(int)
    prefix = np.zeros((3, LENGTH), int)
    if "packed" in name:
        segments = np.array([[1] * 9 + [2] * 15, [1] * 5 + [2] * 8 + [3] * 9 + [0] * 2, [1] * 24])
        ids[segments == 0] = 1
        starts = np.diff(segments, axis=1, prepend=-1) != 0
        weights[starts | (segments == 0)] = 0
        places = hand_made_positions(segments)
        if "prefix" in name:
            prefix = ((places < 4) & (segments > 0)).astype(int)
            weights[prefix > 0] = 0
    weights[:, 0] = 0
    lengths = np.array([3, 9, 20, 1])
    given = {
        "input_ids": ids,
        "positions": hand_made_positions(segments),
        "labels": np.where(weights > 0, ids, -100),
        "allowed": hand_made_mask(segments, prefix),
        "prompts": random.integers(5, 60, (4, 20)),
        "lengths": lengths,
        "new_tokens": np.array(NEW),
        "is_prefix": np.array("prefix" in name or name == "trained"),
    }
    batch = {"input_ids": ids, "segment_ids": segments, "loss_weights": weights}
    if prefix.any():
        batch["prefix_mask"] = prefix
    return given, batch


@pytest.fixture(scope="module")
def folder(trained, tmp_path_factory):
    """What PyTorch says of all cases."""
    folder = tmp_path_factory.mktemp("oracle")
    for name in CASES:
        np.savez(folder / f"{name}.npz", **case_batch(name)[0])
    (trained / "exported").rename(folder / "trained")
    (folder / "cases.json").write_text(json.dumps(CASES))
    oracle = ROOT / "tests" / "tools" / "gpt2_oracle.py"
    subprocess.run([sys.executable, oracle, folder], check=True, capture_output=True)
    return folder


SCHEMA = schema_of(TASK, WORDS, LENGTH)


def loaded(path) -> QaObjective:
    found, tensors = read_directory(str(path), model_types=("gpt2",))
    config = ModelConfig.from_json(found, where="here")
    objective = QaObjective(config, SCHEMA, answers=False)
    fill(objective.model, from_published(tensors, config, seed=0, where="here")[0])
    return objective


def largest(found, due, part, config):
    """The largest difference of gradients or weights."""
    named = to_published(found, config)
    return max(float(np.abs(value - due[f"{part}/{n}"]).max()) for n, value in named.items())


@pytest.mark.parametrize("name", CASES)
def test_logits_loss_gradients_a_step_and_answers_are_those_of_pytorch(name, folder):
    given, batch = case_batch(name)
    with np.load(folder / f"{name}-out.npz") as file:
        due = dict(file)
    objective = loaded(folder / name)
    model, config = objective.model, objective.model.config
    check_answers(model, given, due["answers"])
    tensors = {key: tf.constant(value) for key, value in batch.items()}
    with tf.GradientTape() as tape:
        sums = objective.sums(tensors, None)
        loss = sums.loss / sums.counted
    counted = batch["loss_weights"].sum()
    assert sums.counted == counted
    variables = name_variables(model)
    found = tape.gradient(loss, [variable.value for variable in variables.values()])
    arrays = [tf.convert_to_tensor(gradient).numpy() for gradient in found]
    gradients = from_layout(dict(zip(variables, arrays, strict=True)), config, KERAS)
    differences = {
        "logits": float(np.abs(objective.logits(tensors) - due["logits"]).max()),
        "loss": abs(float(loss) - float(due["loss"]) / counted),
        "gradient": largest(gradients, due, "gradient", config),
    }
    flags = make_flags(
        TfQaFlags, shards="x", warmup_steps=0, learning_rate=LEARNING_RATE, epsilon=EPSILON
    )
    optimizer = make_optimizer(flags.optimization, list(variables.values()))
    optimizer.apply(list(map(tf.constant, arrays)), list(variables.values()))
    differences["a step"] = largest(read(model), due, "step", config)
    print(f"{name}: " + ", ".join(f"{what} {value:.1e}" for what, value in differences.items()))
    limits = {"logits": 2e-5, "loss": 2e-6, "gradient": 5e-6, "a step": 5e-6}
    assert all(differences[what] < limit for what, limit in limits.items())


def check_answers(model, given, due):
    """Token by token those of PyTorch."""

    @tf.function
    def answer(prompts, lengths):
        return answer_prompts(
            model,
            prompts,
            lengths,
            new_tokens=NEW,
            eos=EOS,
            prefix=bool(given["is_prefix"]),
        )

    prompts = tf.constant(given["prompts"], tf.int32)
    found = answer(prompts, tf.constant(given["lengths"], tf.int32))
    np.testing.assert_array_equal(found["answer_ids"], due)
    ends = [[*row, EOS].index(EOS) for row in due.tolist()]
    assert found["answer_lengths"].numpy().tolist() == ends
    # What stands after a prompt does not matter.
    other = np.where(np.arange(20) < given["lengths"][:, None], given["prompts"], 59)
    again = answer(tf.constant(other, tf.int32), tf.constant(given["lengths"], tf.int32))
    np.testing.assert_array_equal(again["answer_ids"], due)


@pytest.mark.parametrize("name", ["as GPT-2", "every switch"])
def test_logits_in_bfloat16_are_no_rounded_ones(name, folder):
    """A tied head and one of its own: what they take is rounded, what they give is not."""
    _, batch = case_batch(name)
    tensors = {key: tf.constant(value) for key, value in batch.items()}
    exact = loaded(folder / name)
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        objective = loaded(folder / name)
    finally:
        keras.config.set_dtype_policy("float32")
    model, weights = objective.model, read(objective.model)
    rows, length = batch["input_ids"].shape
    places = tf.tile(tf.range(length)[None], (rows, 1))
    causal = tf.constant(np.tril(np.ones((rows, length, length), bool)))
    x, _ = model.hidden(tensors["input_ids"], places, causal)
    assert x.dtype == tf.bfloat16
    table = weights.get("head.weight", weights["embeddings.tokens.weight"])
    table = tf.cast(table, tf.bfloat16).numpy().astype(np.float64)
    logits = objective.logits(tensors)
    assert logits.dtype == tf.float32
    np.testing.assert_allclose(logits, x.numpy().astype(np.float64) @ table.T, rtol=1e-5, atol=1e-4)
    apart = float(np.abs(logits - exact.logits(tensors)).max() / np.abs(logits).max())
    print(f"{name}, bfloat16: logits {apart:.1e} of the largest")
    assert 0 < apart < 0.05


# Packing


@pytest.mark.parametrize("form", ["causal", "prefix"])
def test_packed_rows_are_the_same_as_single_ones(form, tmp_path):
    task = replace(TASK, qa_form=form)
    asked = questions(12, 0, impossible=True)
    packed = write_qa_set(tmp_path / "packed", {"train": asked}, task, WORDS, 48)["train"]
    assert packed["segment_ids"].max() > 2
    packed = {n: c for n, c in packed.items() if n not in ("example_id", "prompt_length")}
    config = ModelConfig.new(
        family="gpt2",
        vocab_size=60,
        max_positions=48,
        layers=2,
        hidden_size=16,
        heads=2,
        intermediate_size=64,
        embedding_size=16,
    )
    objective = QaObjective(config, SCHEMA, answers=False)
    model = objective.model
    fill(model, {n: 9 * value for n, value in fresh(config, 0).items()})

    def logits_of(rows):
        return objective.logits({name: tf.constant(rows[name]) for name in packed})

    report = verify_attention(logits_of, {n: c[:3] for n, c in packed.items()}, causal=True)
    found = []
    for batch in (packed, one_segment_a_row(packed)):
        tensors = {name: tf.constant(column) for name, column in batch.items()}
        with tf.GradientTape() as tape:
            loss = objective.sums(tensors, None).loss
        variables = [variable.value for variable in model.trainable_variables]
        found.append([tf.convert_to_tensor(g).numpy() for g in tape.gradient(loss, variables)])
    worst = max(
        np.abs(ours - theirs).max() / np.abs(theirs).max()
        for ours, theirs in zip(*found, strict=True)
    )
    print(f"{form}, packed and alone: gradients {worst:.1e} of the largest\n{report}")
    assert report.ok and AHEAD in report.largest() and worst < 1e-5


# Whole runs


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
    export = [f"--export={folder / 'exported'}", f"--export_saved_model={folder / 'saved'}"]
    use_model.main([str(folder / "run"), "--checkpoint=last", *export])
    (folder / "traces.json").write_text(json.dumps(counts))
    return folder


def test_a_run_learns_and_is_compiled_once(trained):
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


def test_checkpoints_score_as_they_did_in_training(trained, shards, capsys):
    run = trained / "run"
    # Compiled by XLA.
    use_model.main([str(run), "--evaluate", "--checkpoint=all", "--batch_size=4", "--jit_compile"])
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


def test_questions_of_another_set_and_of_one_checkpoint(trained, shards, tmp_path, capsys):
    other = tmp_path / "other"
    asked = questions(6, 0, impossible=True)
    write_qa_set(other, {"validation": asked}, TASK, WORDS, LENGTH)
    use_model.main(
        [
            str(trained / "run"),
            f"--shards={other}",
            "--evaluate",
            "--checkpoint=40",
            "--batch_size=4",
            "--no_jit_compile",
        ]
    )
    assert "exact, no answer" in capsys.readouterr().out
    [folder] = (trained / "run" / "evaluation").glob("other-validation-*")
    assert set(json.loads((folder / "40" / "predictions.json").read_text())) == set("012345")
    changed, use = tmp_path / "changed", [str(trained / "run"), "--evaluate"]
    task = replace(TASK, qa_form="causal")
    write_qa_set(changed, {"validation": asked}, task, WORDS, LENGTH)
    with pytest.raises(UsageError, match="its qa_form is 'causal', the model's is 'prefix'"):
        use_model.main([*use, f"--shards={changed}", "--checkpoint=40"])
    with pytest.raises(UsageError, match="--validation_split=train: .*--no_score"):
        use_model.main([*use, f"--shards={shards}", "--validation_split=train"])
    with pytest.raises(UsageError, match="no checkpoint '7': its steps are 20, 40, 60"):
        use_model.main([*use, "--checkpoint=7"])


def test_a_saved_model_gives_the_answers_of_the_run(trained, shards, tmp_path, capsys):
    served = tf.saved_model.load(str(trained / "saved")).signatures["serving_default"]
    reader = ShardSet(str(shards))
    rows = reader.read("validation", np.arange(9))
    lengths = rows["prompt_length"].astype(np.int32)
    prompts = rows["input_ids"][:, : lengths.max()].astype(np.int32)
    found = served(input_ids=tf.constant(prompts), prompt_lengths=tf.constant(lengths))
    words = [
        " ".join(f"w{word}" for word in ids[:length] if word > 4)
        for ids, length in zip(
            found["answer_ids"].numpy(), found["answer_lengths"].numpy(), strict=True
        )
    ]
    predictions = json.loads((trained / "run" / "predictions.json").read_text())
    assert sorted(words) == sorted(predictions.values()) and any(words)


@pytest.mark.parametrize("form", ["causal", "prefix"])
def test_who_exports_a_prefix_model_is_told_that_transformers_is_causal(form):
    schema = schema_of(replace(TASK, qa_form=form), WORDS, LENGTH)
    notes = QaTask(make_flags(TfQaFlags, shards="x"), schema).export_notes()
    assert ["is causal" in note for note in notes] == [True] * (form == "prefix")


def test_without_a_token_to_learn_there_is_no_loss():
    """Which 0 would say were the best of all."""
    sums = {name: np.zeros(8, np.float32) for name in ("loss", "correct", "counted")}
    task = QaTask(make_flags(TfQaFlags, shards="x"), SCHEMA)
    found = task.measure(iter([({"row_weights": np.ones(8)}, sums)]))
    assert found is not None and np.isnan(found["loss"]) and np.isnan(found["accuracy"])


def weights_of(run: Path, step: int) -> dict[str, np.ndarray]:
    return read_weights(run / "checkpoints" / str(step))


def test_ctrl_c_and_resume_give_the_same_weights(trained, shards, tmp_path, monkeypatch):
    flags = [f"--shards={shards}", f"--output={tmp_path / 'run'}", *RUN]
    write = MetricsFile.write

    def interrupting(self, metrics):
        write(self, metrics)
        if metrics["step"] == 23:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(MetricsFile, "write", interrupting)
    with pytest.raises(SystemExit) as stop:
        main(flags)
    assert stop.value.code == 130
    monkeypatch.undo()
    assert max(int(path.name) for path in (tmp_path / "run" / "checkpoints").iterdir()) in (23, 24)
    main([*flags, "--resume"])
    due = weights_of(trained / "run", 60)
    for name, found in weights_of(tmp_path / "run", 60).items():
        np.testing.assert_array_equal(found, due[name], err_msg=name)


def test_no_number_stops_the_run_with_its_batch(shards, tmp_path):
    with pytest.raises(DataError, match=r"step 2: the loss is nan") as error:
        main(
            [
                f"--shards={shards}",
                f"--output={tmp_path / 'run'}",
                *RUN,
                "--learning_rate=1e30",
                "--no_score",
            ]
        )
    with np.load(tmp_path / "run" / "stopped-at-step-2.npz") as saved:
        assert ", ".join(map(str, saved["row_index"])) in str(error.value)


# What does not fit is refused


def test_refusals(shards, trained, folder, tmp_path):
    write_mlm_set(tmp_path / "mlm")
    long = tmp_path / "long"
    write_qa_set(long, {"train": questions(3, 0)}, TASK, WORDS, 48)
    cases = {
        "holds rows of --task=mlm, and this trainer needs qa": [f"--shards={tmp_path / 'mlm'}"],
        f"--init_from={folder / 'trained'} has 24 positions, but rows of ": [
            f"--shards={long}",
            f"--init_from={folder / 'trained'}",
        ],
        "--layers=3, but the weights of --init_from": [
            f"--shards={shards}",
            f"--init_from={folder / 'trained'}",
            "--layers=3",
        ],
        "give the dataset with --shards=DIR": [],
        "exists already": [f"--shards={shards}", f"--export_saved_model={trained / 'saved'}"],
    }
    for expected, argv in cases.items():
        with pytest.raises(UsageError) as error:
            main(argv)
        assert expected in str(error.value)


def test_published_weights_of_a_smaller_vocabulary_grow(folder):
    schema = schema_of(TASK, LoadedTokenizer(tokenizer_json(64)), LENGTH)
    flags = make_flags(TfQaFlags, shards="x", init_from=str(folder / "trained"), steps=1)
    planned = plan_model(flags, schema)
    weights, notes = planned.first_weights(0)
    assert any("grows from 60 tokens to the dataset's 64" in note for note in notes)
    model = Decoder(planned.config)
    fill(model, weights)
    after = to_published(read(model), model.config)
    for name, value in read_directory(str(folder / "trained"))[1].items():
        np.testing.assert_array_equal(after[name][: len(value)], value)
    assert len(after["transformer.wte.weight"]) == 64


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
