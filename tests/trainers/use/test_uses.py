"""A trained model in use, without a framework: measured, exported, refused with a clear error."""

import json
import re
import shutil
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.tools.clm_factory import chat_schema, clm_rows, clm_schema, write_clm_set
from tests.tools.numpy_program import TABLE, Diary, numpy_trainer, run_numpy
from tests.tools.run_reading import untimed_lines
from tests.tools.shard_factory import replace_tokenizer, tokenizer_json, write_mlm_set, write_set
from textmill.schemas.errors import DataError, TextmillError, UsageError
from textmill.trainers import evaluate, export_model
from textmill.trainers.data.shard_set import ShardSet
from textmill.trainers.models.model_config import ModelConfig, with_dropout
from textmill.trainers.run.checkpoint_files import read_weights
from textmill.trainers.run.checkpoints import Checkpoints
from textmill.trainers.run.trained import find_trained
from textmill.trainers.use import use_flags

pytestmark = pytest.mark.usefixtures("no_picture")


@pytest.fixture(scope="module")
def place(no_picture, tmp_path_factory) -> Path:
    """A set, a run of it (best after step 8 of 12), and its weights for transformers."""
    place = tmp_path_factory.mktemp("place")
    write_clm_set(place / "set", step=0)
    flags = {"steps": 24, "stop_after": 12, "checkpoint_every": 6, "export": f"{place}/hf"}
    run_numpy(f"{place}/set", place / "run", **flags)
    return place


def evaluated_in(place: Path) -> dict[int, dict]:
    """The evaluations of the run as it trained."""
    return {
        line["step"]: {name: line[name] for name in line if name not in ("kind", "step")}
        for line in untimed_lines(place / "run", "evaluation")
    }


def use(
    command: ModuleType,
    run: Path | str,
    *arguments: str,
    diary: Diary | None = None,
    **flags: str,
) -> None:
    """A command with a trainer that has no entry of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(use_flags, "trainer_of", lambda trained, name: numpy_trainer(diary))
        words = [f"--{name}={value}" for name, value in flags.items()]
        command.main([str(run), *arguments, *words])


def measure(run: Path | str, diary: Diary | None = None, **flags: str) -> None:
    use(evaluate, run, diary=diary, **flags)


def measures_in(place: Path, step: int, split: str = "set-validation") -> dict:
    [folder] = (place / "run" / "evaluation").glob(f"{split}-????????")
    return json.loads((folder / str(step) / "metrics.json").read_text())


def test_a_run_in_stages_is_evaluated_on_all_its_datasets(tmp_path, capfd):
    """As in training, without a note: the datasets are those of the run, whatever its stages."""
    for name in ("web", "code"):
        write_clm_set(tmp_path / name, step=0)
    shards = f"{tmp_path}/web,math={tmp_path}/code"
    run_numpy(shards, tmp_path / "run", stages="0:web=1;50%:math=0.7,web=0.3")
    capfd.readouterr()
    measure(tmp_path / "run", checkpoint="last")
    due = dict(untimed_lines(tmp_path / "run", "evaluation")[-1])
    assert [due.pop(name) for name in ("kind", "step", "stage")] == ["evaluation", 12, 2]
    assert measures_in(tmp_path, 12, "web+math-validation") == due
    assert "note:" not in capfd.readouterr().err


def test_checkpoints_are_measured_as_in_training(place, tmp_path, capfd):
    """The best, or all; without what only training needs, and compiled once."""
    report = tmp_path / "report.jsonl"
    report.write_text('{"before": 1}\n')
    made, due = [], evaluated_in(place)
    assert min(due, key=lambda step: due[step]["loss"]) == 8
    for flags, steps in (({}, [8]), ({"checkpoint": "all", "report": str(report)}, [6, 8, 12])):
        diary = Diary()
        measure(place / "run", diary, **flags)
        [folder] = (place / "run" / "evaluation").glob("set-validation-*")
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        assert [line.pop("step") for line in lines] == steps
        assert lines == [measures_in(place, step) for step in steps]
        assert all(measures_in(place, step) == due[step] for step in steps if step in due)
        *said, last = capfd.readouterr().out.splitlines()
        for step, line in zip(steps, said, strict=True):
            assert line.startswith(f"{place}/run, step {step} on validation of {place}/set: loss ")
            assert re.search(r"; [\d,]+ tokens/s$", line)
        assert last == f"Metrics and plots: {folder}"
        assert folder.name.endswith(ShardSet(place / "set").fingerprint[:8])
        made.append([entry for entry in diary.entries if entry[0] in ("load", "compile", "train")])
    assert made[0] == [("load", 0), ("compile", 2)], "nothing for training is made"
    assert [name for name, _ in made[1]].count("compile") == 1
    before, *told = [json.loads(line) for line in report.read_text().splitlines()]
    assert before == {"before": 1}
    for line, step in zip(told, (6, 8, 12), strict=True):
        assert line.pop("tokens_per_second") > 0
        where = {"checkpoint": f"{place}/run, step {step}", "shards": f"{place}/set"}
        assert line == {**where, "split": "validation", **measures_in(place, step)}


def test_published_weights_are_measured(place, tmp_path, capfd):
    """There is no run to keep the metrics in; they are those of the run's best."""
    report = f"{tmp_path}/r.jsonl"
    measure(place / "hf", shards=f"{place}/set", report=report, batch_size="4")
    [line] = (tmp_path / "r.jsonl").read_text().splitlines()
    found = json.loads(line)
    assert found["checkpoint"] == f"{place}/hf"
    assert {name: found[name] for name in evaluated_in(place)[8]} == evaluated_in(place)[8]
    out = capfd.readouterr().out
    assert f"{place}/hf on validation of {place}/set: loss" in out and "are in" not in out
    assert not (place / "hf" / "evaluation").exists()
    with pytest.raises(UsageError, match="hf names no dataset: give one with --shards"):
        measure(place / "hf")


def test_an_output_layer_of_published_weights_own_is_named(place, tmp_path, capfd):
    shutil.copytree(place / "hf", tmp_path / "hf")
    path = tmp_path / "hf" / "model.safetensors"
    tensors = load_file(path)
    config = find_trained(str(place / "hf")).config
    [(double, name)] = config.doubles.items()
    for value, due in ((tensors[name], []), (tensors[name] + 1, [double])):
        save_file({**tensors, double: value}, path)
        found = find_trained(str(tmp_path / "hf"))
        assert found.config.tied == (not due)
        measure(tmp_path / "hf", shards=f"{place}/set")
        notes = [n for n in capfd.readouterr().err.splitlines() if "differs from" in n]
        assert [note.split()[1] for note in notes] == due


def test_another_split_and_other_sets(place, tmp_path):
    """Each into a folder of its own, also where names are the same."""
    for split in ("train", "validation"):
        measure(place / "run", validation_split=split)
    assert measures_in(place, 8, "set-train")["predicted"] > measures_in(place, 8)["predicted"]
    predicted = []
    for folder, rows in (("one", 3), ("two", 5)):
        directory = tmp_path / folder / "test"
        write_clm_set(directory, validation=rows, step=0, seed=9)
        measure(place / "run", shards=str(directory))
        name = f"test-validation-{ShardSet(directory).fingerprint[:8]}"
        path = place / "run" / "evaluation" / name / "8" / "metrics.json"
        predicted.append(json.loads(path.read_text())["predicted"])
    assert 0 < predicted[0] < predicted[1]
    measure(place / "run", shards=f"{place}/set:1,{tmp_path}/two/test:1")
    both = measures_in(place, 8, "set+test-validation")
    assert both["predicted"] == measures_in(place, 8)["predicted"] + predicted[1]


def test_a_dataset_other_than_the_run_s_is_named(tmp_path, capfd):
    """Its own path, built again with fewer tokens, and a dataset somewhere else."""
    write_clm_set(tmp_path / "set", step=0)
    run_numpy(f"{tmp_path}/set", tmp_path / "run", steps=4)
    before = ShardSet(tmp_path / "set").fingerprint[:8]
    capfd.readouterr()
    measure(tmp_path / "run")
    assert "note:" not in capfd.readouterr().err
    shutil.rmtree(tmp_path / "set")
    for name, rows in (("set", 4), ("test", 5)):
        write_clm_set(tmp_path / name, vocab_size=40, validation=rows, step=0)
    notes = []
    for name in ("set", "test"):
        measure(tmp_path / "run", shards=f"{tmp_path}/{name}")
        notes.append([n for n in capfd.readouterr().err.splitlines() if n.startswith("note:")])
    tokens = (
        f"note: the dataset's tokenizer has 35 tokens and that of {tmp_path}/run 45, so it splits "
        "texts otherwise. Losses for a token cannot be compared; bits per byte can"
    )
    after = [ShardSet(tmp_path / name).fingerprint[:8] for name in ("set", "test")]
    ends = (
        f"set was built again after the run: its fingerprint is {after[0]}, the run's {before}",
        f"test is not the dataset of the run: its fingerprint is {after[1]}, the run's {before}",
    )
    assert notes == [[tokens, f"note: {tmp_path}/{end}"] for end in ends]


def test_the_set_of_a_run_is_found_from_another_working_directory(tmp_path, monkeypatch, capfd):
    """One set, and a mixture of two; the run may be resumed from there too."""
    for name in ("a", "b"):
        write_clm_set(tmp_path / "data" / name, step=0)
    (tmp_path / "elsewhere").mkdir()
    for shards in ("data/a", "data/a:3,data/b:1"):
        output = tmp_path / f"run{len(shards)}"
        monkeypatch.chdir(tmp_path)
        run_numpy(shards, output, steps=4, stop_after=2)
        monkeypatch.chdir(tmp_path / "elsewhere")
        measure(output)
        assert f"step 2 on validation of {tmp_path}/data/a" in capfd.readouterr().out
        there = re.sub("data/", f"{tmp_path}/data/", shards)
        run_numpy(there, output, steps=4, resume=True)
        assert Checkpoints(output).latest == 4


def test_rows_that_cannot_be_measured_are_refused(place, tmp_path):
    write_clm_set(tmp_path / "long", max_length=32)
    write_clm_set(tmp_path / "large", vocab_size=60)
    write_mlm_set(tmp_path / "mlm")
    write_clm_set(tmp_path / "other")
    replace_tokenizer(tmp_path / "other", tokenizer_json(50).replace(b'"w7"', b'"seven"'))
    write_clm_set(tmp_path / "none", validation=0)
    columns = {name: clm_rows(clm_schema(), 5, 0) for name in ("train", "validation")}
    columns["validation"]["loss_weights"][:] = 0
    write_set(tmp_path / "unweighted", clm_schema(), columns)
    for name, kind, said in (
        ("long", UsageError, "the model has 16 positions, but rows of .* have 32 tokens"),
        ("large", UsageError, "the model has a vocabulary of 50, but"),
        ("mlm", UsageError, "holds rows of --task=mlm, and this trainer needs clm"),
        ("other", UsageError, f"{place}/run: its tokenizer"),
        ("none", DataError, "split 'validation' has no rows; .* another --validation_split"),
        ("unweighted", DataError, "all loss_weights of split 'validation' are 0, so there is noth"),
    ):
        with pytest.raises(kind, match=said):
            measure(place / "run", shards=f"{tmp_path}/{name}")
    with pytest.raises(UsageError, match="has no split 'test': it has train, validation"):
        measure(place / "run", validation_split="test")
    with pytest.raises(DataError, match=f"^--report={tmp_path}/no/r.jsonl: .*No such file"):
        measure(place / "run", report=f"{tmp_path}/no/r.jsonl")


def test_what_is_no_run_is_refused(place, tmp_path):
    (tmp_path / "bare" / "checkpoints").mkdir(parents=True)
    best = "--checkpoint=best"
    for path, flags, said in (
        (tmp_path, [], "is neither the output directory of a run nor a directory with"),
        (tmp_path / "bare", [], f"{tmp_path}/bare holds no run: it has no config.json"),
        (place / "run", ["--checkpoint=7"], "has no checkpoint '7': its steps are 6, 12, the be"),
        (place / "hf", [best], f"{best} chooses .*/hf is none: use on"),
        (place / "run/checkpoints/6", [best], f"{best} chooses .*/6 is none: use on"),
    ):
        with pytest.raises(UsageError, match=said):
            use(evaluate, path, *flags)
    with pytest.raises(UsageError, match=f"{place}/hf is not a run: give the output directory of"):
        use(export_model, place / "hf", output=f"{tmp_path}/new")
    none, run = f"{tmp_path}/none", f"{place}/run"
    for arguments, said in (
        ([run], "is a run of an unknown trainer 'numpy_clm'"),
        ([run, "--trainer=flax_clm"], "of trainers.numpy_clm, not of trainers.flax_"),
        (["--no_verify", run], "RUN comes first: python -m trainers.evaluate RUN$"),
        ([none, "--unknown"], "^unknown flag --unknown: --help=all lists the flags"),
        ([none, "--repor"], "^unknown flag --repor: did you mean --report?"),
        ([none, "--max_length=9"], "^unknown flag --max_length=9: rows are as long as the dataset"),
        # Flags of some trainer.
        *(
            ([none, flag, "1"], "none is neither the output directory of a run")
            for flag in ("--squad_version=2.0", "--no_verify", "--help")
        ),
    ):
        with pytest.raises(UsageError, match=said):
            evaluate.main(arguments)


def test_a_checkpoint_that_is_damaged_or_not_whole_is_not_measured(place, tmp_path):
    run = shutil.copytree(place / "run", tmp_path / "run")
    path = run / "best" / "8" / "state.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")
    with pytest.raises(DataError, match=f"{path} has changed.* --checkpoint: 6, 12"):
        measure(run)
    partial = run / "checkpoints" / "15.partial"  # which a run is writing
    partial.mkdir()
    measure(run, checkpoint="last")
    assert partial.exists()


READ = ("config.json", "schema.json", "tokenizer.json")


@pytest.mark.parametrize("name", [*READ, "config.yaml", "metrics.jsonl"])
def test_files_that_cannot_be_read_or_written_are_named(place, tmp_path, name):
    """Directories stand for those of another user, which root may read."""
    run = shutil.copytree(place / "run", tmp_path / "run")
    (run / name).unlink()
    (run / name).mkdir()
    with pytest.raises(TextmillError, match=name):
        run_numpy(f"{place}/set", run, steps=24, resume=True)
    if name in READ:
        with pytest.raises(TextmillError, match=name):
            measure(run)


WRONG_WEIGHTS = {
    "of integers": (lambda table: {TABLE: table.view(np.int32)}, r"is int32 \(50, 8\)"),
    "of float64": (lambda table: {TABLE: table.astype(np.float64)}, r"is float64 \(50, 8\)"),
    "transposed": (lambda table: {TABLE: table.T.copy()}, r"is float32 \(8, 50\)"),
    "with another": (
        lambda table: {TABLE: table, "more": table[0]},
        r"weights/more is float32 \(8,\) instead of missing",
    ),
    "without any": (
        lambda table: None,
        "state.safetensors: weights/.* is missing instead of float32",
    ),
}


@pytest.mark.parametrize("name", WRONG_WEIGHTS)
def test_weights_of_another_model_are_refused_in_words(place, tmp_path, name):
    """Under sums that are right: whether they are measured, exported or trained on."""
    change, said = WRONG_WEIGHTS[name]
    shutil.copytree(place / "run", tmp_path / "run")
    checkpoint = tmp_path / "run" / "checkpoints" / "12"
    arrays = load_file(checkpoint / "state.safetensors")
    changed = change(arrays[f"weights/{TABLE}"])
    if changed is None:
        arrays = {key: value for key, value in arrays.items() if key.startswith("state/")}
    else:
        arrays.update({f"weights/{key}": value for key, value in changed.items()})
    save_file(arrays, checkpoint / "state.safetensors")
    files = [checkpoint / name for name in ("progress.json", "state.safetensors")]
    sums = [f"{sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files]
    (checkpoint / "SHA256SUMS").write_text("".join(sums))
    output = f"{tmp_path}/run"
    for act in (
        lambda: measure(output, checkpoint="12"),
        lambda: use(export_model, output, checkpoint="12", output=f"{tmp_path}/out"),
        lambda: run_numpy(f"{place}/set", tmp_path / "run", steps=24, resume=True),
    ):
        with pytest.raises(DataError, match=f"{checkpoint} cannot be read: .*{said}"):
            act()
    assert not (tmp_path / "out").exists()


def test_weights_of_a_run_are_exported_later(place, tmp_path, capfd):
    diary = Diary()
    use(export_model, place / "run", diary=diary, output=f"{tmp_path}/hf")
    said = capfd.readouterr().err
    assert "the weights after step 8\n" in said
    assert f"weights for transformers: {tmp_path}/hf\n" in said
    assert diary.entries == [], "no framework is needed for that"
    names = ["config.json", "generation_config.json", "model.safetensors"]
    names += ["tokenizer.json", "tokenizer_config.json"]
    assert sorted(path.name for path in (tmp_path / "hf").iterdir()) == names
    for name in names:  # what the run itself left
        assert (tmp_path / "hf" / name).read_bytes() == (place / "hf" / name).read_bytes()
    checkpoint = place / "run" / "checkpoints" / "6"
    measure(checkpoint)
    out = capfd.readouterr().out
    assert f"{place}/run, step 6 on validation of {place}/set" in out and measures_in(place, 6)
    use(export_model, checkpoint, output=f"{tmp_path}/6")
    exported = load_file(tmp_path / "6" / "model.safetensors")["transformer.wte.weight"]
    [path] = Checkpoints(place / "run").choose("6")
    np.testing.assert_array_equal(exported, read_weights(path)[TABLE])


def test_the_chat_template_of_a_dataset_is_exported(tmp_path):
    parameters = {**chat_schema().parameters, "chat_template": "{{ messages[0].content }}!"}
    schema = replace(chat_schema(), parameters=parameters, fingerprint="")
    write_clm_set(tmp_path / "set", schema=schema)
    run_numpy(f"{tmp_path}/set", tmp_path / "run", steps=1, export=f"{tmp_path}/hf")
    settings = json.loads((tmp_path / "hf" / "tokenizer_config.json").read_text())
    assert settings["chat_template"] == parameters["chat_template"]


def test_ends_of_the_first_weights_stay_in_a_run_and_its_export(place, tmp_path):
    first = shutil.copytree(place / "hf", tmp_path / "first")
    (first / "generation_config.json").write_text('{"eos_token_id": [9, 2, 77]}')
    flags = {"init_from": f"{first}", "layers": None, "hidden_size": None, "heads": None}
    run_numpy(f"{place}/set", tmp_path / "run", steps=1, **flags, intermediate_size=None)
    shutil.rmtree(first)
    use(export_model, tmp_path / "run", output=f"{tmp_path}/hf")
    ids = {"bos_token_id": 0, "eos_token_id": [2, 9], "pad_token_id": 1}
    for name in ("run", "hf"):
        assert find_trained(f"{tmp_path}/{name}").eos_ids == (2, 9)
        assert json.loads((tmp_path / name / "generation_config.json").read_text()) == ids
    config = json.loads((tmp_path / "hf" / "config.json").read_text())
    assert {name: config[name] for name in ids} == ids


def test_what_was_trained_is_found(place, monkeypatch):
    monkeypatch.chdir(place / "run" / "checkpoints")
    for path, name in (("6", "6"), (f"{place}/run/best/8", "8"), (f"{place}/run", "8")):
        trained = find_trained(path)
        assert trained.directory.resolve() == (place / "run").resolve()
        assert [name for name, _ in trained.weights] == [name]
    trained = find_trained(f"{place}/run", "all")
    assert [name for name, _ in trained.weights] == ["6", "8", "12"]
    due = ModelConfig.new(
        family="gpt2",
        vocab_size=50,
        max_positions=16,
        layers=1,
        hidden_size=8,
        heads=1,
        intermediate_size=8,
        embedding_size=8,
        activation="gelu_new",
    )
    assert trained.config == with_dropout(due, 0.1)
    assert (trained.prefix_ids, trained.eos_ids) == ((0,), (2,))
    assert (trained.trainer, trained.settings["shards"]) == ("numpy_clm", f"{place}/set")
    assert trained.schema == clm_schema() and trained.tokenizer_json == tokenizer_json(50)
    published = find_trained(f"{place}/hf")
    assert published.schema is None and published.trainer == "flax_clm"
    assert (published.prefix_ids, published.eos_ids) == ((0,), (2,))
    assert published.config == due
    [(name, read)] = published.weights
    assert name == "published"
    np.testing.assert_array_equal(read()[TABLE], dict(trained.weights)["8"]()[TABLE])
