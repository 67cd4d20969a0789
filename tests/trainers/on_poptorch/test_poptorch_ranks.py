"""Several processes of the PyTorch trainer, as torchrun starts them, on CPUs with gloo."""

import pytest
import torch

from schemas.errors import DataError, UsageError
from tests.tools.class_factory import write_class_set
from tests.tools.poptorch_programs import make_program
from tests.tools.poptorch_stub import installed
from trainers import use_model
from trainers.on_poptorch.ranks import (
    Ranks,
    choose_gpu,
    hint_at_gpus,
    join_ranks,
    report_lost_ranks,
)
from trainers.poptorch_classifier import main


def test_one_process_needs_no_others():
    alone, values = Ranks(), torch.arange(3.0)
    assert (alone.index, alone.count, alone.local, alone.is_first) == (0, 1, 0, True)
    assert alone.add(values) is alone.concatenate(values) is values
    assert alone.share(lambda: "x") == "x"


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


def test_a_model_is_used_in_one_process(tmp_path, monkeypatch):
    write_class_set(tmp_path / "set")
    flags = [f"--shards={tmp_path / 'set'}", f"--output={tmp_path / 'run'}", "--device=cpu"]
    main([*flags, "--model=tiny", "--steps=1"])
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UsageError, match="WORLD_SIZE=2: use_model runs in one process"):
        use_model.main([str(tmp_path / "run"), "--evaluate"])


def test_ipus_need_no_torchrun(tmp_path, monkeypatch):
    write_class_set(tmp_path / "set")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with installed():
        with pytest.raises(UsageError, match="WORLD_SIZE=2: a run on IPUs .*--replication"):
            make_program(tmp_path / "set", device="ipu", accumulation=8, blocks_per_ipu="3")
