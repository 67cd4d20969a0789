"""Training and the uses of a trained model from Python, for every trainer."""

import os
import re
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import textmill as tm
from tests.tools.class_factory import write_class_set
from tests.tools.clm_factory import write_clm_set
from tests.tools.poptorch_stub import installed
from tests.tools.question_factory import write_qa_set
from tests.tools.shard_factory import tokenizer_json, write_mlm_set
from textmill.pipelines.encoding.tokenizer import LoadedTokenizer
from textmill.pipelines.tasks.qa import Qa
from textmill.pipelines.tasks.questions import QuestionTemplate
from textmill.trainers.run.checkpoints import Checkpoints

WORDS = LoadedTokenizer(tokenizer_json(60))
QA = Qa(
    qa_template=QuestionTemplate("w5 {question} w6 {context} w7 {answer}"),
    max_question_length=3,
    max_answer_length=4,
)
ASKED = [("w10", f"w{n} w{n + 1}", [(f"w{n + 1}", 4)], str(n)) for n in range(20, 36)]


def write_questions(directory: Path) -> None:
    write_qa_set(directory, {"train": ASKED, "validation": ASKED[:4]}, QA, WORDS, 24)


class Case(NamedTuple):
    """A trainer with its smallest dataset."""

    trainer: str
    write: Callable[[Path], Any]
    settings: dict[str, Any]


SMALL = {"layers": 1, "hidden_size": 16, "heads": 2, "intermediate_size": 16, "batch_size": 4}
ON_CPU = {**SMALL, "device": "cpu", "jit_compile": False}
CASES = [
    Case("poptorch_classifier", write_class_set, {**SMALL, "device": "cpu"}),
    Case("flax_mlm", write_mlm_set, SMALL),
    Case("flax_clm", write_clm_set, SMALL),
    Case("tf_classifier", write_class_set, ON_CPU),
    Case("tf_qa", write_questions, ON_CPU),
]
# PyTorch starts the fastest.
PARAMETERS = [
    pytest.param(case, id=case.trainer, marks=[pytest.mark.slow] if number else [])
    for number, case in enumerate(CASES)
]


class Trained(NamedTuple):
    """A dataset, and a run on it of three steps: two, and one after it was resumed."""

    case: Case
    data: tm.Dataset
    run: tm.Run


def train(case: Case, **settings: Any) -> tm.Run:
    call: Any = tm.train
    return call(case.trainer, **{**case.settings, **settings})


@pytest.fixture(scope="module", params=PARAMETERS)
def trained(request, tmp_path_factory) -> Trained:
    case, place = request.param, tmp_path_factory.mktemp("runs")
    case.write(place / "shards")
    data = tm.open(place / "shards")
    assert isinstance(data, tm.Dataset)
    length = {"steps": 3, "output": place / "run", "evaluate_every": 2}
    train(case, shards=data, stop_after=2, **length)
    run = train(case, shards=str(data), resume=True, **length)
    return Trained(case, data, run)


def test_a_run_is_resumed(trained):
    """From a dataset, then from its path; no step is repeated."""
    lines = trained.run.metrics()
    assert [line["step"] for line in lines if line["kind"] == "train"] == [1, 2, 3]
    assert [line["step"] for line in lines if line["kind"] == "evaluation"] == [2, 3]
    assert trained.run.settings["trainer"] == trained.case.trainer
    assert trained.run.seconds is not None and os.path.exists(trained.run.report)
    facts = trained.run.facts()
    assert [*facts] == ["trainer", "training loss", "validation loss"]
    assert facts["training loss"].endswith("at step 1") and " at step 3, " in facts["training loss"]
    found = tm.open(trained.run)
    assert type(found) is tm.Run and found.facts() == facts


def test_a_directory_with_a_run_is_refused(trained):
    with pytest.raises(tm.UsageError, match="holds a run already: add resume=True to continue it"):
        train(trained.case, shards=trained.data, output=trained.run, steps=3)


@pytest.mark.parametrize("form", [list, dict])
def test_a_mixture(trained, form, tmp_path):
    """As a list of texts, and by dataset."""
    other = tmp_path / "other"
    trained.case.write(other)
    weights = {trained.data: 0.5, other: 0.5}
    shards = weights if form is dict else [f"{path}:{w}" for path, w in weights.items()]
    run = train(trained.case, shards=shards, output=tmp_path / "run", steps=1)
    assert run.settings["config"]["shards"] == f"{trained.data}:0.5,{other}:0.5"
    assert [line["step"] for line in run.metrics() if line["kind"] == "train"] == [1]


def test_a_mixture_in_stages(trained, tmp_path, capsys):
    """As a mapping; a dry run prints how often each dataset is read, and is not a run."""
    other = tmp_path / "other"
    trained.case.write(other)
    given = {
        "shards": f"one={trained.data},two={other}",
        "output": tmp_path / "run",
        "stages": {0: {"one": 0.5, "two": 0.5}, "50%": {"two": 1}},
        "steps": 2,
    }
    assert train(trained.case, **given, dry_run=True) is None
    assert "passes so far\n" in capsys.readouterr().out and not (tmp_path / "run").exists()
    run = train(trained.case, **given)
    assert run.settings["config"]["stages"] == "0:one=0.5,two=0.5;1:two=1"
    assert [line["stage"] for line in run.metrics() if line["kind"] == "train"] == [1, 2]
    bad = {**given, "stages": {0: {"one": 0}}}
    with pytest.raises(tm.UsageError, match="^stages=0:one=0: the share 0 of one must be above 0"):
        train(trained.case, **bad)


def test_datasets_without_weights_are_refused(trained):
    with pytest.raises(tm.UsageError, match="^shards=.* has no weight; give one directory, or ea"):
        train(trained.case, shards=[trained.data, "other"], output="run")


def test_evaluations_are_those_of_the_training(trained):
    evaluations = [line for line in trained.run.metrics() if line["kind"] == "evaluation"]
    of_step = {line["step"]: line["loss"] for line in evaluations}
    last = trained.run.evaluate(checkpoint="last", batch_size=2)
    assert last["step"] == 3 and last["loss"] == pytest.approx(of_step[3], rel=1e-5)
    rows = trained.run.evaluate(checkpoint="all", shards=trained.data, evaluation_rows=2)
    assert [row["step"] for row in rows] == [2, 3]


def test_only_some_models_label_or_write(trained):
    run = trained.run
    if trained.case.trainer.endswith("classifier"):
        found = run.predict(["w6 w7", "w5"], checkpoint="last")
        assert [each.label in ("neg", "pos") for each in found] == [True, True]
        assert all(0.5 <= each.probability <= 1 for each in found)
        file = Path(trained.data).parent / "texts.txt"
        file.write_text("w6 w7\nw5\n")
        written = file.with_suffix(".tsv")
        assert run.predict(file, checkpoint="last", output=written) == found
        due = [f"{each.label}\t{each.probability:.6f}" for each in found]
        assert written.read_text().splitlines() == due
        with pytest.raises(tm.UsageError, match=r"^texts: text 2 is \('a', 'b'\): give a text$"):
            run.predict(["a", ("a", "b")])
    else:
        with pytest.raises(
            tm.UsageError, match=f"models of trainers.{trained.case.trainer} label no texts"
        ):
            run.predict(["w6"])
    if trained.case.trainer == "flax_clm":
        assert run.generate("w7", max_new_tokens=2).startswith("w7 ")
        texts = run.generate("w7", samples=2, temperature=1.0, max_new_tokens=2)
        assert [text.startswith("w7") for text in texts] == [True, True]
        with pytest.raises(tm.UsageError, match=" has no chat template"):
            run.chat("w7")
    else:
        with pytest.raises(
            tm.UsageError, match=f"models of trainers.{trained.case.trainer} write no texts"
        ):
            run.generate("w7")


def test_a_model_is_exported(trained, tmp_path):
    directory = trained.run.export(tmp_path / "out", checkpoint=3)
    names = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    assert names <= {*os.listdir(directory)}
    with pytest.raises(tm.UsageError, match="^output=.*out exists already"):
        trained.run.export(tmp_path / "out")


@pytest.mark.parametrize(
    ("verb", "settings", "said"),
    [
        ("evaluate", {"checkpoint": 9}, "has no checkpoint '9': its steps are 2, 3"),
        ("evaluate", {"batch_size": 0}, "^batch_size=0: must be at least 1"),
        ("evaluate", {"validation_split": "none"}, "has no split 'none'"),
        (
            "evaluate",
            {"validation_spilt": "test"},
            "^unknown keyword validation_spilt=test: did yo",
        ),
        ("evaluate", {"verify": "yes"}, "^verify=yes: give True or False"),
        ("predict", {"texts": ["w6"], "checkpoint": "all"}, "^checkpoint=all works with evaluate"),
        ("export", {"output": "gs://a/b"}, "^output=gs://a/b: give a directory on this machine"),
    ],
    ids=str,
)
def test_wrong_values_are_named_as_keywords(trained, verb, settings, said):
    with pytest.raises(tm.UsageError, match=said) as refused:
        getattr(trained.run, verb)(**settings)
    assert not re.search(r"--(?!help=all` lists)", str(refused.value))


def test_a_run_on_ipus(tmp_path):
    """By a stand-in for PopTorch; resumed and used on it, too."""
    write_class_set(tmp_path / "shards")
    settings = {**SMALL, "shards": tmp_path / "shards", "output": tmp_path / "run", "steps": 4}
    with installed():
        tm.train("poptorch_classifier", device="ipu", device_iterations=2, stop_after=2, **settings)
        run = tm.train("poptorch_classifier", device_iterations=2, resume=True, **settings)
        assert len(run.predict(["w6 w7", "w5"])) == 2
        last = run.evaluate(checkpoint="last")
    lines = [line["step"] for line in run.metrics() if line["kind"] == "train"]
    assert (lines, last["step"]) == ([1, 2, 3, 4], 4)
    with pytest.raises(tm.UsageError, match="^device=ipu: PopTorch finds no IPU"):
        tm.train("poptorch_classifier", device="ipu", **{**settings, "output": tmp_path / "none"})


def test_ctrl_c_saves_the_run(trained, tmp_path):
    metrics = tmp_path / "run" / "metrics.jsonl"

    def interrupt() -> None:
        while not (metrics.exists() and metrics.stat().st_size):
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    settings = {"shards": trained.data, "output": tmp_path / "run", "steps": 100_000}
    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt, match="^resume=True continues from the newest"):
        train(trained.case, **settings)
    stopped = tm.open(tmp_path / "run")
    assert isinstance(stopped, tm.Run)
    steps = Checkpoints(tmp_path / "run").latest
    assert len([line for line in stopped.metrics() if line["kind"] == "train"]) == steps > 0
    run = train(trained.case, stop_after=steps + 1, resume=True, **settings)
    lines = [line["step"] for line in run.metrics() if line["kind"] == "train"]
    assert lines == [*range(1, steps + 2)]
