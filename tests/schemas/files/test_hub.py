"""A name on the Hub as a flag's value: found in huggingface_hub's cache, or nowhere."""

import shutil
import time
from pathlib import Path

import huggingface_hub
import pytest

from tests.tools.hub_cache import COMMIT, cached
from textmill.pipelines.build_shards import main as build_shards
from textmill.schemas.errors import UsageError
from textmill.schemas.files import hub
from textmill.schemas.files.finished import read_dataset
from textmill.schemas.files.hub import find_on_hub


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A cache of this test alone."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hf" / "hub"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "hf"


class Api:
    """The Hub as `HfApi` sees it: it raises, or takes its time."""

    answer: BaseException | float = ConnectionError("no route to host")

    def model_info(self, *_, **__):
        if isinstance(self.answer, BaseException):
            raise self.answer
        time.sleep(self.answer)


@pytest.fixture
def api(monkeypatch):
    """Stands for the Hub, which no test may ask."""
    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    return Api


def test_what_the_cache_has_is_found_with_its_commit(home, api):
    snapshot = cached(home, "gpt2", {"tokenizer.json": b"{}"})
    for value in ("gpt2", f"gpt2@{COMMIT}", "gpt2@main"):
        found = find_on_hub(value, field="tokenizer")
        assert found == (str(snapshot), f"gpt2@{COMMIT}")
    model = cached(home, "google-bert/bert-base-uncased", {"model.safetensors": b""})
    found = find_on_hub("google-bert/bert-base-uncased", field="init_from")
    assert found == (str(model), f"google-bert/bert-base-uncased@{COMMIT}")
    with pytest.raises(UsageError, match="not reachable"):  # it has the weights alone
        find_on_hub("google-bert/bert-base-uncased", field="tokenizer")


def test_a_path_is_never_looked_up(home, tmp_path):
    (tmp_path / "gpt2").mkdir()
    values = ("gpt2", "/no/such", "./none", "none.json", "gs://bucket/x", "a/b/c", "")
    for value in values:
        assert find_on_hub(value, field="tokenizer") == (value, value)


@pytest.mark.timeout(50)  # the Hub answers after 60 s
def test_without_a_hub_the_command_that_fetches_is_named(home, api, monkeypatch):
    with pytest.raises(UsageError) as raised:
        find_on_hub("openai/gpt2", field="tokenizer")
    assert str(raised.value) == (
        "--tokenizer=openai/gpt2: no directory openai/gpt2, and the Hugging Face Hub is not "
        "reachable: run `hf download openai/gpt2 --local-dir gpt2` and give --tokenizer=gpt2"
    )
    monkeypatch.setattr(api, "answer", ValueError("no such repository"))
    with pytest.raises(UsageError, match="the Hugging Face Hub has no model of this"):
        find_on_hub("gpt3", field="init_from")
    monkeypatch.setattr(api, "answer", 60.0)
    monkeypatch.setattr(hub, "_PATIENCE", 0.1)
    with pytest.raises(UsageError, match="not reachable"):
        find_on_hub("gpt2", field="tokenizer")


def test_a_set_records_the_commit_of_its_tokenizer(home, api, tmp_path, tokenizer_path):
    cached(home, "gpt2", {"tokenizer.json": Path(tokenizer_path).read_bytes()})
    (tmp_path / "a.txt").write_text("Some words.\n")
    flags = ["--input=a.txt", "--output=set", "--splits=train:1", "--tokenizer=gpt2"]
    build_shards(flags)
    assert f"tokenizer: gpt2@{COMMIT}\n" in (tmp_path / "set" / "config.yaml").read_text()
    assert read_dataset("set").schema.vocab_size == 2000
    shutil.rmtree(home)
    with pytest.raises(UsageError, match="run `hf download gpt2 --local-dir gpt2`"):
        build_shards([*flags, "--overwrite"])
