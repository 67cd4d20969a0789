"""--config of the pipelines, and the files that repeat a run."""

import importlib
from dataclasses import replace

import pytest
import yaml

from textmill.pipelines.corpus.filters import Filters, papers
from textmill.pipelines.corpus.rules.rule import papers_numbers
from textmill.pipelines.tokenizer.options import TextFlags, TokenizerOptions
from textmill.pipelines.train_tokenizer import BUILDER
from textmill.schemas.commands.flag_file import CONFIGS, config_bytes
from textmill.schemas.errors import UsageError
from textmill.trainers.flags.command_line import flag_values, parse_flags
from textmill.trainers.flax_mlm import FlaxMlmFlags

OPTIONS = TokenizerOptions(
    vocab_size=300,
    output="where",
    special_tokens=("<s>", "no"),
    overwrite=True,
    reading=TextFlags(input=("a *.txt", "b: 'c'.jsonl"), text_field="yes", max_rejects=-1),
)


def test_the_file_of_a_run_gives_its_options_again(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_bytes(config_bytes("pipelines.train_tokenizer", OPTIONS))
    assert BUILDER.parse([f"--config={path}", "--output=there"]) == (
        replace(OPTIONS, output="there", overwrite=False),
        [],
    )
    written = yaml.safe_load(path.read_text())
    assert not {"output", "overwrite", "from_histogram", "reading"} & set(written)
    assert list(written)[:2] == ["vocab_size", "model"]  # as --help has them
    assert "python -m pipelines.train_tokenizer --config=" in path.read_text().splitlines()[0]


def test_flags_of_beam_may_stand_in_it_and_no_others(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text("vocab_size: 300\ndirect_num_workers: 2\nno_save_main_session: true\n")
    _, beam = BUILDER.parse([f"--config={path}", "--input=x", "--output=y"])
    assert beam == ["--direct_num_workers=2", "--no_save_main_session"]
    path.write_text("vocab_size: 300\nmin_frequncy: 2\n")
    with pytest.raises(UsageError, match=r"job.yaml: .*min_frequncy.*did you mean --min_frequency"):
        BUILDER.parse([f"--config={path}"])


READY = sorted(path.stem for path in CONFIGS.glob("*.yaml"))
# Paths that a user adds to each command.
COMMANDS = {
    "build_corpus": ["--input=text", "--output=there"],
    "train_tokenizer": ["--input=text", "--output=there"],
    "build_shards": ["--input=text", "--tokenizer=tokenizer", "--output=there"],
}


@pytest.mark.parametrize("name", READY)
def test_every_part_of_a_ready_file_is_understood(name):
    parts = yaml.safe_load((CONFIGS / f"{name}.yaml").read_text())
    assert parts
    for command, values in parts.items():
        argv = [f"--config={name}", *COMMANDS.get(command, ["--shards=there"])]
        if command in COMMANDS:
            module = importlib.import_module(f"textmill.pipelines.{command}")
            options, others = module.BUILDER.parse(argv)
            assert others == []
        else:
            trainer = importlib.import_module(f"textmill.trainers.{command}").TRAINER
            options = parse_flags(argv, trainer.flags)
        found = flag_values(options)
        for flag, value in values.items():
            if not isinstance(value, (dict, list)):
                assert str(found[flag]) == str(value) or float(found[flag]) == float(value), flag


def test_a_trainer_takes_its_part_and_leaves_the_file_that_repeats_it(tmp_path):
    def read(*argv):
        return parse_flags(list(argv), FlaxMlmFlags)

    config = read("--config=norwegian_roberta", "--shards=a b", "--epochs=2", "--no_verify")
    values = flag_values(config)
    assert [values[name] for name in ("model", "learning_rate", "epochs")] == ["base", 3e-4, 2]
    path = tmp_path / "config.yaml"
    path.write_bytes(config_bytes("trainers.flax_mlm", config))
    assert read(f"--config={path}") == config
    path.write_text("learing_rate: 3e-4\n")
    with pytest.raises(UsageError, match="yaml: unknown flag --learing_rate=3e-4: did you"):
        read(f"--config={path}")
    with pytest.raises(UsageError, match="squad_gpt2_prefix.yaml has no part flax_mlm"):
        read("--config=squad_gpt2_prefix")


PAPERS = {
    row: replace(group, **papers_numbers(type(group))).parameters()  # pyright: ignore
    for row, group in Filters().groups()
    if row in papers()
}


@pytest.mark.parametrize(
    ("name", "whole", "missing"),
    [("fineweb", papers(), {"c4_line_ends"}), ("c4", ("c4",), set()), ("gopher", ("gopher",), {})],
)
def test_numbers_of_a_corpus_are_those_of_the_paper(name, whole, missing):
    recipe = yaml.safe_load((CONFIGS / f"{name}.yaml").read_text())["build_corpus"]
    for row, numbers in PAPERS.items():
        own = {flag: recipe[flag] for flag in numbers if flag in recipe}
        due = {flag: value for flag, value in numbers.items() if flag not in missing}
        assert own == (due if row in whole else {})
