"""Several processes of the PyTorch trainer, as torchrun starts them, on CPUs with gloo."""

import pytest
import torch

from schemas.errors import DataError, UsageError
from tests.tools.class_factory import write_class_set
from trainers.on_poptorch.ranks import (
    Ranks,
    choose_gpu,
    hint_at_gpus,
    join_ranks,
    report_lost_ranks,
)
from trainers.poptorch_classifier import main


def test_one_process_needs_no_others(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    alone, values = join_ranks(), torch.arange(3.0)
    assert alone == Ranks(index=0, count=1, local=0)
    assert alone.add(values) is alone.concatenate(values) is values
    assert alone.share("x") == "x"


def test_an_environment_that_is_not_torchruns(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    for name in ("RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(UsageError, match=r"WORLD_SIZE=2 .*KeyError\('RANK'\).*`torchrun --nproc"):
        join_ranks()


def test_a_machine_with_too_few_gpus_and_one_with_more():
    gpus = torch.cuda.device_count()
    with pytest.raises(UsageError, match=f"LOCAL_RANK={gpus}: .* has {gpus}: .*--device=cpu"):
        choose_gpu(gpus)
    assert hint_at_gpus(1) == ""
    assert hint_at_gpus(8).startswith(" (1 of 8 GPUs; all of them: torchrun --nproc_per_node=8 -m")


def test_a_lost_process_is_reported_and_a_defect_is_not():
    with pytest.raises(DataError, match="another process of the run has ended.*--resume"):
        with report_lost_ranks():
            raise RuntimeError("[gloo/transport/tcp/pair.cc:544] Connection closed")
    with pytest.raises(RuntimeError, match="size of tensor"):
        with report_lost_ranks():
            raise RuntimeError("The size of tensor a (2) must match")


def test_several_processes_are_refused(tmp_path, monkeypatch):
    write_class_set(tmp_path / "set")
    monkeypatch.setenv("WORLD_SIZE", "2")
    flags = [f"--shards={tmp_path / 'set'}", f"--output={tmp_path / 'run'}", "--device=cpu"]
    with pytest.raises(UsageError, match="WORLD_SIZE=2: this trainer runs in one process"):
        main(flags)
