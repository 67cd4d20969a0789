"""Runs of flax_clm and flax_mlm: compiled once, measured as PyTorch does, in and out, generating.

tests/trainers/run, flags and use/test_uses.py test the code that all five trainers share.
"""

import json
from dataclasses import replace
from typing import Any

import jax
import jax.monitoring
import jax.numpy as jnp
import numpy as np
import pytest

from tests.tools.clm_factory import chat_schema, write_clm_set
from tests.tools.run_reading import untimed_lines
from tests.tools.shard_factory import replace_tokenizer, tokenizer_json, write_mlm_set
from tests.tools.torch_models import greedy, nats_of, open_model, torch, transformers
from textmill.schemas.errors import DataError, UsageError
from textmill.trainers import chat as answer
from textmill.trainers import evaluate, export_model, flax_mlm, predict
from textmill.trainers import generate as continue_text
from textmill.trainers.data.shard_set import ShardSet
from textmill.trainers.flags.task_flags import GenerationFlags
from textmill.trainers.flax_clm import FlaxClmFlags, main
from textmill.trainers.models.chat_format import format_of_schema
from textmill.trainers.models.generation_files import text_ends
from textmill.trainers.on_flax import generation
from textmill.trainers.on_flax.flax_decoder import ClmObjective
from textmill.trainers.on_flax.generation import Generated
from textmill.trainers.run.checkpoint_files import read_checkpoint
from textmill.trainers.run.journal import MetricsFile
from textmill.trainers.run.trained import find_trained
from textmill.trainers.tasks.language_models import LOSS

pytestmark = pytest.mark.usefixtures("cache")
# One configuration for most runs: equal programs are compiled once. An epoch has 10 steps.
RUN = ["--steps=12", "--batch_size=4", "--dropout=0.1", "--learning_rate=0.02"]
SIZES = ["--layers=1", "--hidden_size=16", "--heads=2", "--intermediate_size=32"]
MODEL = [*SIZES, "--max_positions=48"]


@pytest.fixture(scope="module")
def whole(shards, tmp_path_factory):
    """A run in one go, its exported weights, and what was compiled between its lines of metrics."""
    output = tmp_path_factory.mktemp("runs") / "whole"
    told: list[str] = []
    write = MetricsFile.write

    def note(event: str, duration_secs: float, **kwargs: str | int) -> None:
        if "compile" in event:
            told.append(event)

    def note_line(self, metrics: dict[str, Any]) -> None:
        told.append(f"{metrics['kind']} {metrics['step']}")
        write(self, metrics)

    jax.monitoring.register_event_duration_secs_listener(note)
    exported = output.parent / "exported"
    more = ["--evaluate_every=5", "--checkpoint_every=4", f"--export={exported}"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MetricsFile, "write", note_line)
        main(flags(shards, output, *more))
    return output, exported, told


def flags(shards, output, *more):
    return [f"--shards={shards}", f"--output={output}", *RUN, *MODEL, *more]


def test_nothing_compiles_after_the_first_step(whole):
    """Training, evaluating and writing checkpoints compile before it."""
    told = whole[2]
    assert "evaluation 12" in told and told.count("train 1") == 1
    after = told[told.index("train 1") : told.index("evaluation 12")]
    assert [event for event in after if "compile" in event] == []
    assert any("compile" in event for event in told)  # the listener hears what compiles


def test_what_is_exported_transformers_measures_alike(shards, whole):
    """The validation loss of the run, by PyTorch, on the same packed rows; it learns."""
    output, exported, _ = whole
    losses = [line["loss"] for line in untimed_lines(output, "train")]
    assert losses[-1] < losses[0]
    model = open_model(str(exported)).eval()
    nats = counted = 0.0
    for batch in ShardSet(shards).sequential_batches("validation", batch_size=5):
        found = nats_of(model, batch)
        nats, counted = nats + found[0].item(), counted + found[1].item()
    assert nats / counted == pytest.approx(
        untimed_lines(output, "evaluation")[-1]["loss"], rel=1e-5
    )
    tokenizer = transformers.AutoTokenizer.from_pretrained(exported)
    assert tokenizer("w7 w9")["input_ids"] == [0, 7, 9]  # as rows begin; the dataset's adds </s>


def test_a_step_too_large_for_the_memory_says_what_makes_it_smaller(
    shards, whole, tmp_path, monkeypatch
):
    sums = ClmObjective.sums

    def with_256_terabytes(*arguments):
        found = sums(*arguments)
        wide = jnp.broadcast_to(found[LOSS], (1 << 24, 1 << 22))
        return found | {LOSS: found[LOSS] + 0 * wide.cumsum(0).cumsum(1)[-1, -1]}

    monkeypatch.setattr(ClmObjective, "sums", with_256_terabytes)
    expected = (
        "the memory is too small for --batch_size=4: .*--gradient_accumulation_steps=2, --remat, or"
    )
    with pytest.raises(DataError, match=expected):
        main(flags(shards, tmp_path / "run"))
    with pytest.raises(DataError, match="the memory is too small for --batch_size=4: lower it"):
        evaluate.main([str(whole[0])])


def test_another_tokenizer_is_refused(whole, tmp_path):
    exported = whole[1]
    content = json.loads(tokenizer_json(50))
    vocabulary = content["model"]["vocab"]
    vocabulary["w5"], vocabulary["w6"] = vocabulary["w6"], vocabulary["w5"]
    write_clm_set(tmp_path / "other")
    replace_tokenizer(tmp_path / "other", json.dumps(content).encode())
    other = f"--shards={tmp_path / 'other'}"
    with pytest.raises(UsageError, match="id 5 is 'w5' there and 'w6' in the dataset"):
        main([other, f"--init_from={exported}"])
    with pytest.raises(
        UsageError, match=f"{exported}: .*id 5 is 'w5' there and 'w6' in the dataset"
    ):
        evaluate.main([str(exported), other])


def test_generates_from_a_run_and_from_an_export(whole, capsys):
    output, exported, _ = whole
    text = ["w7 w8", "--max_new_tokens=8"]
    found = []
    for checkpoint in (output, exported):
        continue_text.main([str(checkpoint), *text])
        said = capsys.readouterr()
        assert "tokens in" in said.err and str(checkpoint) in said.err
        found.append(said.out)
    theirs = greedy(open_model(str(exported)), [0, 7, 8], 8)  # <s> as in training
    words = " ".join(f"w{number}" for number in (7, 8, *theirs) if number > 4)
    assert found[0] == found[1] == f"{words}\n"
    write = transformers.pipeline("text-generation", model=str(exported))
    [theirs] = write("w7 w8", max_new_tokens=8, do_sample=False)
    assert theirs["generated_text"] == words
    continue_text.main([str(output), "<s> w7 w8", "--max_new_tokens=8"])
    said = capsys.readouterr()  # a text as a template renders it gets no second <s>
    assert said.out == found[0] and "note: the text begins with <s>" in said.err
    drawn = ["--temperature=1.5", "--samples=3", "--top_k=40", "--top_p=0.95"]
    texts = []
    for seed in (0, 0, 1):
        continue_text.main([str(output), *text, *drawn, f"--seed={seed}"])
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1] != texts[2]
    assert [line[:3] for line in texts[0].splitlines()].count("---") == 3


def test_a_long_prompt_leaves_less_room_and_says_so(whole, capsys):
    words = " ".join(f"w{5 + number % 40}" for number in range(40))
    continue_text.main([str(whole[0]), words, "--max_new_tokens=50"])
    assert "the model has 48 positions: generating at most 7 tokens" in capsys.readouterr().err
    with pytest.raises(
        UsageError, match="^the prompt has 49 tokens, but the model has 48 positions"
    ):
        continue_text.main([str(whole[0]), f"{words} {' '.join(words.split()[:8])}"])


CHAT = (
    "{% for m in messages %}w{{ m.role | length + 10 }} {{ m.content }} <mask> {% endfor %}"
    "{% if add_generation_prompt %}w19{% endif %}"
)


def test_a_message_is_answered_in_the_template_of_the_dataset(tmp_path, monkeypatch, capsys):
    """Up to the first special token after an answer, or to --end_of_turn."""
    parameters = {**chat_schema().parameters, "chat_template": CHAT}
    write_clm_set(
        tmp_path / "set", schema=replace(chat_schema(), parameters=parameters, fingerprint="")
    )
    main(flags(tmp_path / "set", tmp_path / "run", "--stop_after=1"))
    calls = []

    def generate(trained, compute, flags, prompt):
        calls.append((prompt, trained.eos_ids))
        return Generated(jnp.array([[9, 12, 10, 4]]), jnp.array([4])), "fast"

    monkeypatch.setattr(generation, "_generate", generate)
    capsys.readouterr()
    answer.main([str(tmp_path / "run"), "w7 w8"])
    assert calls.pop() == ([14, 7, 8, 4, 19], (2, 4))
    assert capsys.readouterr().out == "w9 w12 w10\n"
    continue_text.main([str(tmp_path / "run"), "w7 w8"])
    assert calls.pop() == ([7, 8], (2, 4))  # ends of both
    export_model.main([str(tmp_path / "run"), f"--output={tmp_path / 'out'}"])
    answer.main([str(tmp_path / "out"), "w7 w8"])
    assert calls.pop() == ([14, 7, 8, 4, 19], (2, 4))
    capsys.readouterr()
    trained = find_trained(str(tmp_path / "run"))
    assert trained.tokenizer_json is not None
    for end, ids, shown in (("w12", (2, 12), "w9 "), ("w12 w10", (2,), "w9 ")):
        named = {**parameters, "end_of_turn": end}
        schema = replace(chat_schema(), parameters=named, fingerprint="")
        ends = text_ends(schema, trained.tokenizer_json, vocab_size=50)
        chat = format_of_schema(schema, trained.tokenizer_json)
        changed = replace(trained, chat=chat, eos_ids=ends)
        found = generation.write_texts(
            changed, FlaxClmFlags(), GenerationFlags(), "w7 w8", is_message=True
        )
        assert found == [shown]
        assert calls.pop()[1] == ids
    with pytest.raises(UsageError, match="^the prompt has 103 tokens"):  # of the template
        answer.main([str(tmp_path / "run"), "w7 " * 100])


USING = [
    (continue_text, ["w7", "--samples=2"], "--samples=2 would be the same text each"),
    (continue_text, ["w7", "--checkpoint=all"], "--checkpoint=all works with evaluate only"),
    (continue_text, ["w7", "w8"], "^w8 belongs to no flag: .* needs quotes$"),
    (continue_text, ["--top_k=1"], "generate needs TEXT in quotes: .*generate run 'Once upon"),
    (evaluate, ["--batch-size=0"], "--batch_size=0: must be at least 1"),
    (predict, [], "^give a file of texts with --input=FILE$"),
    (
        predict,
        ["--input=texts"],
        ": models of trainers.flax_clm label no texts; give one of trainers.tf_cl",
    ),
    (continue_text, ["--text=w7"], "^--text=w7: leave --text= out, as in RUN TEXT$"),
    (answer, ["w7"], "whole has no chat template: it is not a run on a dataset of --task=chat"),
    (answer, [], "whole has no chat template: it is not a run on a dataset of --task=chat"),
    (export_model, [], "^nothing to export: give --output=DIR$"),
]


@pytest.mark.parametrize("command, arguments, message", USING)
def test_a_use_that_makes_no_sense_is_refused(whole, command, arguments, message):
    with pytest.raises(UsageError, match=message):
        command.main([str(whole[0]), *arguments])


@pytest.mark.slow
def test_a_checkpoint_is_measured_alike_whatever_the_flags(tmp_path):
    """Masks of an evaluation come of the set: its largest seed, and its rate or BERT's."""
    write_mlm_set(tmp_path / "set", static_masking=False, mask_rate=0.0, seed=(1 << 64) - 1)
    output, found = tmp_path / "run", []
    more = ["--steps=15", "--batch_size=4", "--seed=5", "--mask_rate=0.4"]
    flax_mlm.main([f"--shards={tmp_path / 'set'}", f"--output={output}", *SIZES, *more])
    for more in ([], ["--seed=6"], ["--mask_rate=0.3"]):
        evaluate.main([str(output), "--batch_size=4", *more])
        [path] = output.glob("evaluation/*/15/metrics.json")
        found.append(json.loads(path.read_text()))
    [trained] = untimed_lines(output, "evaluation")
    for metrics in found:
        assert metrics["masked"] == trained["masked"]
        assert metrics["loss"] == pytest.approx(trained["loss"], rel=1e-6)
        assert metrics["accuracy"] == trained["accuracy"]


def loss_by_torch(model, shards):
    """The sum over the masked tokens of validation, each segment alone."""
    total = 0.0
    for rows in ShardSet(str(shards)).sequential_batches("validation", batch_size=1):
        segments = rows["segment_ids"][0].astype(int)
        used = rows["masked_weights"][0] > 0
        places = rows["masked_positions"][0][used].astype(int)
        labels = rows["masked_ids"][0][used].astype(int)
        for segment in range(1, segments.max() + 1):
            here = np.flatnonzero(segments == segment)
            ids = torch.from_numpy(rows["input_ids"][:, here].astype(int))
            inside = np.isin(places, here)
            with torch.no_grad():
                logits = model(ids).logits[0, places[inside] - here[0]]
            total += torch.nn.functional.cross_entropy(
                logits, torch.from_numpy(labels[inside]), reduction="sum"
            ).item()
    return total


def test_published_weights_are_trained_and_exported(tmp_path, capsys):
    """BERT of 40 tokens into a set of 50, three steps, a resume, and out again."""
    sizes = transformers.BertConfig(
        vocab_size=40,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=18,
        pad_token_id=1,
    )
    published = tmp_path / "published"
    transformers.AutoModelForMaskedLM.from_config(sizes).save_pretrained(published)
    shards = tmp_path / "set"
    write_mlm_set(shards)
    run = [f"--shards={shards}", f"--output={tmp_path / 'run'}", "--steps=3"]
    run += [f"--init_from={published}", "--batch_size=4"]
    out = f"--export={tmp_path / 'out'}"
    flax_mlm.main([*run, out, "--stop_after=2"])
    assert "note: the vocabulary grows from 40 tokens" in capsys.readouterr().err
    first = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "out").state_dict()
    with pytest.raises(UsageError, match="--export=.*exists already"):
        flax_mlm.main([*run, out, "--resume"])
    flax_mlm.main([*run, f"--export={tmp_path / 'last'}", "--resume"])
    model = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "last").eval()
    moved = model.state_dict()
    assert any(not torch.equal(first[name], moved[name]) for name in moved)
    logged = untimed_lines(tmp_path / "run", "evaluation")[-1]
    due = loss_by_torch(model, shards) / logged["masked"]
    assert logged["step"] == 3 and logged["loss"] == pytest.approx(due, rel=1e-5)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "last")
    assert tokenizer("w7 w9")["input_ids"] == [0, 7, 9, 2]
    assert tokenizer.model_max_length == 18


@pytest.mark.slow
def test_a_mixture_in_stages_is_resumed_exactly(tmp_path):
    """Stopped in the middle of a stage, or where one begins: losses and weights, bit by bit."""
    for number, name in enumerate(("web", "code", "math")):
        write_clm_set(tmp_path / name, train=20 + 10 * number, step=number)
    paths = ",".join(str(tmp_path / name) for name in ("web", "code", "math"))
    stages = "--stages=0:web=0.6,code=0.4;5:code=1;75%:math=0.7,web=0.3"
    main(flags(paths, tmp_path / "whole", stages))
    for stop in (3, 5, 10):
        output = tmp_path / str(stop)
        main(flags(paths, output, stages, f"--stop_after={stop}"))
        main(flags(paths, output, stages, "--resume"))
        assert untimed_lines(output) == untimed_lines(tmp_path / "whole")
        last = [read_checkpoint(run / "checkpoints" / "12") for run in (output, tmp_path / "whole")]
        for one, other in zip(*(list(each.weights.values()) for each in last), strict=True):
            np.testing.assert_array_equal(one, other)
