"""Exported decoders: `generate` and transformers write the same texts and stop at the same ids."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from tests.tools.clm_factory import chat_schema
from tests.tools.shard_factory import tokenizer_json
from tests.tools.small_decoders import CONFIGS, large_weights
from tests.tools.torch_models import transformers
from textmill.trainers import chat, generate
from textmill.trainers.flags.command_line import make_flags
from textmill.trainers.flax_clm import FlaxClmFlags
from textmill.trainers.run.export import export_weights
from textmill.trainers.run.journal import ProgressLine
from textmill.trainers.run.plan import TrainingPlan
from textmill.trainers.tasks.language_models import ClmTask

pytestmark = pytest.mark.usefixtures("cache")
TEXT, PROMPT, NEW = "w20 w31 w7", [20, 31, 7], 20
SEED = 4  # of weights with which each family writes several tokens
TEMPLATE = (
    "{{ bos_token }} {% for m in messages %}w{{ m.role | length + 10 }} {{ m.content }} "
    "{% endfor %}{% if add_generation_prompt %}w19{% endif %}"
)
FAMILIES = [name for name in CONFIGS if name != "opt-350m"]


def export(name: str, directory: str, end_of_turn: str) -> None:
    """The weights of a family, as from a run on conversations."""
    parameters = {**chat_schema().parameters, "end_of_turn": end_of_turn}
    parameters["chat_template"] = TEMPLATE
    schema = replace(chat_schema(), vocab_size=60, parameters=parameters, fingerprint="")
    flags = make_flags(FlaxClmFlags, shards="-", output=f"{directory}-run")
    plan, config = TrainingPlan(flags, schema, CONFIGS[name], 1, flags.output), CONFIGS[name]
    task, content = ClmTask(flags, schema), tokenizer_json(60)
    read = partial(large_weights, config, SEED)
    export_weights(plan, directory, task, read, content, ProgressLine().say)


def generated(directory: str, **inputs: Any) -> list[int]:
    """Greedy new tokens, by `generate`."""
    model: Any = transformers.AutoModelForCausalLM.from_pretrained(directory)
    prompt = inputs["input_ids"].shape[1]
    found = model.generate(**inputs, max_new_tokens=NEW, do_sample=False)
    return found[0, prompt:].tolist()


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (n != "llama")) for n in FAMILIES]
)
def test_an_export_writes_the_same_texts_and_stops_at_the_same_ids(name, tmp_path, capsys):
    """Continued by AutoModel, AutoTokenizer and `pipeline`; answered by apply_chat_template."""
    directory = f"{tmp_path}/out"
    export(name, f"{tmp_path}/endless", "")
    tokenizer = transformers.AutoTokenizer.from_pretrained(f"{tmp_path}/endless")
    if name == "qwen2":  # AutoTokenizer takes Qwen2Tokenizer for all of this family
        kind = transformers.PreTrainedTokenizerFast
        tokenizer = kind.from_pretrained(f"{tmp_path}/endless")
    prompt = tokenizer(TEXT, return_tensors="pt")
    assert prompt["input_ids"].tolist() == [PROMPT]
    endless = generated(f"{tmp_path}/endless", **prompt)
    end = next(
        i for i in range(1, len(endless)) if endless[i] > 4 and endless[i] not in endless[:i]
    )
    export(name, directory, f"w{endless[end]}")
    theirs = generated(directory, **prompt)
    assert theirs == endless[: end + 1]
    text = tokenizer.decode([*PROMPT, *theirs], skip_special_tokens=True)
    generate.main([directory, TEXT, f"--max_new_tokens={NEW}"])
    assert capsys.readouterr().out == f"{text}\n"
    write = transformers.pipeline("text-generation", model=directory, tokenizer=tokenizer)
    [found] = write(TEXT, max_new_tokens=NEW, do_sample=False, return_tensors=True)
    assert found["generated_token_ids"] == [*PROMPT, *theirs]
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": TEXT}],
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=True,
    )
    assert prompt["input_ids"].tolist() == [[0, 14, *PROMPT, 19]]  # one bos
    answer = tokenizer.decode(generated(directory, **prompt), skip_special_tokens=True)
    chat.main([directory, TEXT, f"--max_new_tokens={NEW}"])
    assert capsys.readouterr().out == f"{answer}\n"
