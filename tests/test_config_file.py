"""--config of the pipelines, and the files that repeat a run."""

from dataclasses import replace

import pytest
import tyro
import yaml

from pipelines.config_file import config_bytes, with_config
from pipelines.filters import Filters
from pipelines.launch import check_arguments
from pipelines.tokenizer_options import TokenizerOptions
from schemas.errors import UsageError

OPTIONS = TokenizerOptions(
    vocab_size=300,
    output="where",
    input=("a *.txt", "b: 'c'.jsonl"),
    special_tokens="<s>,no",
    text_field="yes",
    filters=Filters(normalize="nfc", max_repetition=0.25, keep_rejects=True),
    overwrite=True,
)


def parse(argv):
    def check(flags):
        check_arguments(flags, TokenizerOptions)

    argv = with_config(argv, "train_tokenizer", TokenizerOptions, check_unknown=check)
    return tyro.cli(TokenizerOptions, args=argv, use_underscores=True, return_unknown_args=True)


def test_the_file_of_a_run_gives_its_options_again(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_bytes(config_bytes("train_tokenizer", OPTIONS))
    assert parse([f"--config={path}", "--output=there"]) == (
        replace(OPTIONS, output="there", overwrite=False),
        [],
    )
    written = yaml.safe_load(path.read_text())
    assert not {"output", "overwrite", "from_histogram", "filters"} & set(written)
    assert list(written)[:2] == ["vocab_size", "input"]  # as --help has them
    assert "python -m pipelines.train_tokenizer --config=" in path.read_text().splitlines()[0]


def test_flags_of_beam_may_stand_in_it_and_no_others(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text("vocab_size: 300\ndirect_num_workers: 2\nno_save_main_session: true\n")
    _, beam = parse([f"--config={path}", "--input=x", "--output=y"])
    assert beam == ["--direct_num_workers=2", "--no_save_main_session"]
    path.write_text("vocab_size: 300\nmin_frequncy: 2\n")
    with pytest.raises(UsageError, match=r"job.yaml: .*min_frequncy.*did you mean --min_frequency"):
        parse([f"--config={path}"])
    path.write_text("vocab_size: 300\nmin_wrds: 2\n")
    with pytest.raises(UsageError, match="did you mean --min_words"):
        parse([f"--config={path}"])


def test_without_a_file_nothing_changes():
    argv = ["--vocab_size=300"]
    assert with_config(argv, "train_tokenizer", TokenizerOptions, check_unknown=print) is argv
