"""Chat: where the assistant speaks, as `transformers` has it by `{% generation %}`."""

import json
import re
import string
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, processors
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from pipelines.build.options import BuildOptions
from pipelines.build_shards import main
from pipelines.encoding.tokenizer import LoadedTokenizer, load_tokenizer
from pipelines.input_options import InputFlags
from pipelines.inspection.checks.set_check import verify_set
from pipelines.readers.documents import Documents
from pipelines.tasks.chat import Chat
from pipelines.tasks.chat_template import ChatTemplate
from schemas.errors import UsageError
from schemas.metadata import read_set
from schemas.records import open_rows
from tests.tools.chat_styles import STYLES, oracle, styled_tokenizer
from tests.tools.task_rows import segments_of
from trainers import flax_clm

TEXTS = [
    "Hello there! What's new, and how do I sort a list?\n\n",
    "[INST] Blåbær 中文 🙂 ok <s>",
] * 9


@pytest.fixture(scope="session")
def tokenizers():
    made = {}

    def make(name):
        if name not in made:
            made[name] = styled_tokenizer(STYLES[name], TEXTS)
        return made[name]

    return make


def weigh(style, tokenizer, conversations, *, template=None, tools="", **flags):
    """Ids and weights of each conversation, and why others are refused."""
    named = {"bos": style.bos, "eos": style.eos}
    loaded = LoadedTokenizer(tokenizer.to_str().encode(), named)
    given = style.plain if template is None else template
    loaded.chat_templates = given if isinstance(given, dict) else {"default": given}
    task = Chat(**flags)
    options = BuildOptions(
        reading=InputFlags(("i",)), tokenizer="t", output="o", task="chat", settings=task
    )
    schema = options.schema(loaded, {"": 1})
    texts = [json.dumps(messages, ensure_ascii=False) for messages in conversations]
    columns = pa.record_batch(
        {
            "messages": pa.array(texts, pa.large_string()),
            "tools": pa.array([tools] * len(texts), pa.large_string()),
        }
    )
    made = task.examples(Documents(columns, 0, (), 0), loaded, schema, np.ones(len(texts), bool))
    ids, offsets = made.ragged["ids"]
    weights = made.ragged["weights"].values
    spans = [slice(a, b) for a, b in zip(offsets[:-1], offsets[1:], strict=True)]
    found = [(ids[span].tolist(), weights[span].tolist()) for span in spans]
    assert len(found) == len(made.document_E)
    return found, dict(made.rejects)


def chat(*contents, system=None):
    roles = ("user", "assistant")
    messages = [{"role": roles[i % 2], "content": c} for i, c in enumerate(contents)]
    return ([] if system is None else [{"role": "system", "content": system}]) + messages


HAND_MADE = [
    chat("Hello", "Hi there!"),
    chat("Hello", "Hi", "And?", "So it is. ", "\n", " ok\n"),
    chat("a", "b", "a", "b", "b", "a"),
    chat("Hello", "🙂", "中文 Blåbær", "🙂🙂 e\u0301"),
    chat("{{ bos_token }}", "{% generation %}{{ x }}{% endgeneration %}{# no #}"),
    chat("</s><|im_end|>", "a <|im_start|>assistant\nb</s> <|eot_id|>c<end_of_turn> d<|end|> e"),
    chat("only a question", "x", "and another without an answer"),
    chat("x", "-- \t indented\n\tand so on \u00a0", system="Be brief."),
]


@pytest.mark.parametrize("name", STYLES)
def test_as_transformers_has_it(tokenizers, name):
    style, tokenizer = STYLES[name], tokenizers(name)
    due = [oracle(style, tokenizer, messages) for messages in HAND_MADE]
    assert weigh(style, tokenizer, HAND_MADE) == (due, {})
    assert weigh(style, tokenizer, HAND_MADE, template=style.template) == (due, {})
    assert all(sum(weights) for _, weights in due)


_WORDS = st.sampled_from(
    ["Hello", "🙂", "</s>", "<|im_end|>", " ", "\n", "{{ x }}", "[/INST]", "<|eot_id|>", "é", "中"]
)
_CONTENT = st.lists(_WORDS | st.text(string.printable, max_size=3), max_size=6).map("".join)


@pytest.mark.parametrize("name", STYLES)
@settings(max_examples=60, deadline=None)
@given(
    contents=st.lists(_CONTENT | st.text(max_size=5), min_size=2, max_size=6),
    system=st.none() | _CONTENT,
)
def test_any_contents(tokenizers, name, contents, system):
    style, tokenizer = STYLES[name], tokenizers(name)
    messages = chat(*contents, system=system)
    due = oracle(style, tokenizer, messages)
    assert weigh(style, tokenizer, [messages]) == ([due], {})


def test_what_transformers_leaves_out(tokenizers):
    """With trim_offsets it finds no token at white space, and ends the mask there."""
    style, messages = STYLES["ChatML"], chat("a", " Hello", "b", "ok")
    tokenizer = Tokenizer.from_str(tokenizers("ChatML").to_str())
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    due = oracle(style, tokenizer, messages)
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    ids, mask = oracle(style, tokenizer, messages)
    assert ids == due[0] and sum(mask) < sum(due[1])
    assert weigh(style, tokenizer, [messages]) == ([due], {})


CALLS = [
    {"type": "function", "function": {"name": "look", "arguments": {"b": "<|im_end|>", "a": 1}}},
    {"type": "function", "function": {"name": "wait", "arguments": {}}},
]
TOOLS = [{"type": "function", "function": {"name": "look", "description": "é", "a": None}}]


def test_calls_of_tools(tokenizers):
    style, tokenizer = STYLES["ChatML"], tokenizers("ChatML")
    conversations = [
        [
            {"role": "user", "content": "Look!"},
            {"role": "assistant", "content": content, "tool_calls": CALLS},
            {"role": "tool", "content": "nothing there"},
            {"role": "assistant", "content": "Nothing."},
        ]
        for content in ("", None, "I look")
    ]
    due = [oracle(style, tokenizer, messages, TOOLS) for messages in conversations]
    tools = json.dumps(TOOLS, ensure_ascii=False)
    for template in (style.plain, style.template):
        found = weigh(style, tokenizer, conversations, template=template, tools=tools)
        assert found == (due, {})
    assert weigh(style, tokenizer, conversations, tools=json.dumps(tools)) == (due, {})


def said(style, tokenizer, conversations, **flags):
    """The text that is trained on, and rejects."""
    found, refused = weigh(style, tokenizer, conversations, **flags)
    texts = []
    for ids, weights in found:
        chosen = [i for i, weight in zip(ids, weights, strict=True) if weight]
        texts.append(tokenizer.decode(chosen, skip_special_tokens=False))
    return texts, refused


def test_what_is_trained_on(tokenizers):
    style, tokenizer = STYLES["ChatML"], tokenizers("ChatML")
    chats = [chat("a", "b", "c", "d")]
    assert said(style, tokenizer, chats) == (["b<|im_end|>d<|im_end|>"], {})
    assert said(style, tokenizer, chats, train_on="last") == (["d<|im_end|>"], {})
    whole = "".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in chats[0])
    assert said(style, tokenizer, chats, train_on="all") == ([whole], {})
    assert said(style, tokenizer, chats, end_of_turn="\n")[0] == ["b<|im_end|>\nd<|im_end|>\n"]
    weighted = chat("a", "b", "c", "d")
    weighted[1]["weight"] = 0
    weighted[3]["weight"] = 1
    assert said(style, tokenizer, [weighted]) == (["d<|im_end|>"], {})


# As in templates of models that take images: each part trimmed, marks for what is no text.
_OF_PARTS = (
    "{% for m in messages %}<|im_start|>{{ m.role + '\n' }}{% if m.role == 'assistant' %}"
    "{% generation %}CONTENT<|im_end|>{% endgeneration %}{% else %}CONTENT<|im_end|>{% endif %}"
    "{{ '\n' }}{% endfor %}"
).replace(
    "CONTENT",
    "{% if m.content is string %}{{ m.content | trim }}{% else %}{% for part in m.content %}"
    "{% if not loop.first %}{{ ' ' }}{% endif %}"
    "{% if part.type == 'text' %}{{ part.text | trim }}{% else %}<image>{% endif %}"
    "{% endfor %}{% endif %}",
)


def _parts(*texts):
    return [{"type": "text", "text": text} for text in texts]


@settings(max_examples=80, deadline=None)
@given(contents=st.lists(_CONTENT | st.lists(_CONTENT, min_size=1, max_size=3), min_size=2))
def test_parts_go_to_a_template_that_takes_them(tokenizers, contents):
    style, tokenizer = STYLES["ChatML"]._replace(template=_OF_PARTS), tokenizers("ChatML")
    shaped = [c if isinstance(c, str) else _parts(*c) for c in contents]
    due = oracle(style, tokenizer, chat(*shaped))
    assert weigh(style, tokenizer, [chat(*shaped)]) == ([due], {})
    assert weigh(style, tokenizer, [chat(*shaped)], template=_OF_PARTS) == ([due], {})


def test_parts_are_joined_for_a_role_whose_contents_are_texts(tokenizers):
    style, tokenizer = STYLES["ChatML"], tokenizers("ChatML")
    template = _OF_PARTS.replace("{% if m.content is", "{% if m.role == 'user' or m.content is", 1)
    assert ChatTemplate(template, "", {}).takes_parts("user")
    found = said(style, tokenizer, [chat(_parts("a ", "b"), _parts("c ", "d"))], template=template)
    assert found == (["c d<|im_end|>"], {})


REASONING = (
    "{% for m in messages %}<|im_start|>{{ m.role + '\n' }}{% if m.role == 'assistant' %}"
    "{% generation %}{% if m.reasoning_content is defined %}"
    "{{ '<think>' + m.reasoning_content + '</think>' }}{% elif not enable_thinking | default(true) "
    "%}{{ '<think></think>' }}{% endif %}{{ m.content }}<|im_end|>{% endgeneration %}"
    "{% else %}{{ m.content }}<|im_end|>{% endif %}{{ '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant{{ '\n' }}{% endif %}"
)


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning", "thinking"])
def test_reasoning_by_any_of_its_names(tokenizers, name):
    style, tokenizer = STYLES["ChatML"]._replace(template=REASONING), tokenizers("ChatML")
    messages = chat("a", "b", "c", "d")
    messages[3] |= {name: "so", "refusal": None}
    due = oracle(style, tokenizer, messages)
    assert weigh(style, tokenizer, [messages]) == ([due], {})
    assert said(style, tokenizer, [messages])[0] == ["b<|im_end|><think>so</think>d<|im_end|>"]


def test_arguments_of_a_template(tokenizers):
    style, tokenizer = STYLES["ChatML"], tokenizers("ChatML")
    template = "{{ greeting }}" + re.sub("{% (end)?generation %}", "", REASONING)
    arguments = {"enable_thinking": False, "greeting": "Ünder 🙂"}
    fast: Any = PreTrainedTokenizerFast(tokenizer_object=tokenizer)
    due = fast.apply_chat_template(chat("a", "b"), chat_template=template, **arguments)["input_ids"]
    text = json.dumps(arguments)
    [(ids, weights)], refused = weigh(
        style, tokenizer, [chat("a", "b")], template=template, chat_template_arguments=text
    )
    assert ids == due and not refused
    chosen = [i for i, weight in zip(ids, weights, strict=True) if weight]
    assert tokenizer.decode(chosen, skip_special_tokens=False) == "b<|im_end|>"


def test_one_of_several_templates(tokenizers):
    style, tokenizer = STYLES["ChatML"], tokenizers("ChatML")
    several = {"default": style.plain, "loud": style.plain.replace("m.content", "m.content + '!'")}
    chats = [chat("a", "b")]
    assert said(style, tokenizer, chats, template=several)[0] == ["b<|im_end|>"]
    loud = weigh(style, tokenizer, chats, template=several, chat_template="loud")
    fast: Any = PreTrainedTokenizerFast(tokenizer_object=tokenizer, chat_template=several)
    assert loud[0][0][0] == fast.apply_chat_template(chats[0], chat_template="loud")["input_ids"]
    with pytest.raises(UsageError, match="templates loud, but none named default: choose"):
        weigh(style, tokenizer, chats, template={"loud": several["loud"]})
    with pytest.raises(UsageError, match="quiet cannot be read: .*; the tokenizer has default, l"):
        weigh(style, tokenizer, chats, template=several, chat_template="quiet")


def test_templates_that_transformers_saved(tokenizers, tmp_path):
    several = {"default": "{{ 1 }}\n", "loud": "{{ 2 }}", "quiet": "{{ 3 }}"}
    tokenizer = tokenizers("ChatML")
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, chat_template=several).save_pretrained(
        str(tmp_path)
    )
    assert (tmp_path / "additional_chat_templates" / "loud.jinja").exists()
    assert load_tokenizer(tmp_path).chat_templates == several
    listed = [{"name": name, "template": text} for name, text in several.items()]
    old = tmp_path / "old"
    old.mkdir()
    tokenizer.save(str(old / "tokenizer.json"))
    (old / "tokenizer_config.json").write_text(json.dumps({"chat_template": listed}))
    assert load_tokenizer(old).chat_templates == several
    assert AutoTokenizer.from_pretrained(str(old)).chat_template == several


def test_contents_of_parts(tokenizers):
    style, tokenizer = STYLES["Zephyr"], tokenizers("Zephyr")
    part = {"type": "text", "text": "Hel"}
    parts = [{"role": "user", "content": "a"}, {"role": "assistant", "content": [part, "lo"]}]
    assert weigh(style, tokenizer, [parts]) == weigh(style, tokenizer, [chat("a", "Hello")])
    image = {"type": "image_url", "image_url": "x.png"}
    parts = [{"role": "user", "content": [part, image]}, *chat("a", "b")]
    _, refused = weigh(style, tokenizer, [parts])
    reason, detail = refused[0]
    assert reason == "not_text" and detail.endswith(
        "messages[0] has a part of the type 'image_url'"
    )


@pytest.mark.parametrize(
    ("messages", "reason", "says"),
    [
        ([], "not_messages", "or is empty"),
        ({}, "not_messages", "messages is not a list"),
        ("[{", "not_messages", "a text but not JSON"),
        (["hi"], "not_messages", r"messages\[0\] is not an object with a role"),
        ([{"content": "hi"}], "not_messages", "not an object with a role"),
        (
            [{"role": "user", "content": 5}],
            "not_messages",
            r"content of messages\[0\] is not a text",
        ),
        (chat("hi"), "nothing_to_train_on", "has no text to train on"),
        ([{"role": "developer", "content": ""}], "template_failed", "no developer here"),
        ([{"role": "user"}], "template_failed", "UndefinedError: .*'content'"),
    ],
)
def test_refused_conversations(tokenizers, messages, reason, says):
    style, tokenizer = STYLES["Mistral"], tokenizers("Mistral")
    good = chat("a", "b")
    found, refused = weigh(style, tokenizer, [good, messages, good])
    assert len(found) == 2 and set(refused) == {1} and refused[1][0] == reason
    assert re.search(says, refused[1][1])


@pytest.fixture(scope="module")
def folder(tokenizers, topics, tmp_path_factory):
    """A tokenizer with its template, and conversations in two formats."""
    style, folder = STYLES["ChatML"], tmp_path_factory.mktemp("chat")
    tokenizers("ChatML").save(str(folder / "tokenizer.json"))
    config = {"eos_token": style.eos, "pad_token": style.bos, "chat_template": style.plain}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    chats = [
        {
            "messages": chat(text[:40], text, *(("And?", text[::-1]) if i % 2 else ())),
            # A table has nulls in the other rows of such fields.
            "tools": [{"name": "look", "parameters": {f"p{i % 2}": "é"}}] if i % 3 else None,
        }
        for i, text in enumerate([text for text in topics[:900] if 0 < len(text) < 300])
    ]
    chats[0]["messages"][1] = {"role": "assistant", "content": None, "tool_calls": CALLS[:1]}
    lines = [json.dumps({k: v for k, v in one.items() if v}, ensure_ascii=False) for one in chats]
    (folder / "in.jsonl").write_text("\n".join([*lines, lines[7], '{"messages": []}']))
    table = pa.Table.from_pylist([*chats, chats[7], {"messages": []}])
    pq.write_table(table, folder / "in.parquet")
    return folder, [json.loads(line) for line in lines]


def build(folder, output, *flags, kind="jsonl"):
    main(
        [
            "--task=chat",
            f"--input={folder / 'in'}.{kind}",
            f"--tokenizer={folder}",
            f"--output={output}",
            "--max_length=1024",
            "--num_shards=2",
            "--splits=train:0.8,validation:0.2",
            *flags,
        ]
    )
    return read_set(str(output))


@pytest.fixture(scope="module")
def made(folder, tmp_path_factory):
    return build(folder[0], tmp_path_factory.mktemp("made") / "set")


def segments(made):
    """(ids, loss weights) of every segment."""
    codec = made.schema.codec()
    for file in filter(lambda file: file.split, made.manifest.files):
        rows = open_rows(f"{made.directory}/{file.path}", codec.stride)
        columns = codec.decode(rows.read_range(0, len(rows)))
        for segment in segments_of(columns, "input_ids", "loss_weights"):
            yield tuple(map(tuple, segment))


def test_a_set_as_transformers_has_it(made, folder):
    auto = AutoTokenizer.from_pretrained(str(folder[0]))
    template = STYLES["ChatML"].template
    due = set()
    for one in folder[1]:
        marked = auto.apply_chat_template(
            one["messages"],
            tools=one.get("tools"),
            chat_template=template,
            return_dict=True,
            return_assistant_tokens_mask=True,
        )
        due.add((tuple(marked["input_ids"]), tuple(marked["assistant_masks"])))
    found = list(segments(made))
    assert set(found) == due and len(found) == len(due) > 300
    total = made.stats.total()
    assert total.trained == sum(sum(weights) for _, weights in found)
    assert total.tokens == total.tokens_in_rows and total.dropped["duplicates"] >= 1
    assert made.stats.dropped == {"not_messages": 1}
    [line] = Path(made.locate("rejects/rejects.jsonl")).read_text().splitlines()
    reject = json.loads(line)
    record = Path(reject["path"]).read_bytes()[reject["offset"] :].splitlines()[0]
    assert json.dumps(json.loads(record)["messages"])[:20] in reject["detail"]
    assert verify_set(made.directory).problems == []
    assert made.schema.special_ids["eos"] == auto.eos_token_id
    assert made.schema.parameters["chat_template"] == STYLES["ChatML"].plain


def content(made):
    own = {"inputs.json", "config.yaml", "report.html", "stats.json", "rejects/rejects.jsonl"}
    return {file.path: file.sha256 for file in made.manifest.files if file.path not in own}


def test_parquet_gives_the_same_rows(made, folder, tmp_path):
    assert content(build(folder[0], tmp_path / "set", kind="parquet")) == content(made)


@pytest.mark.slow  # worker processes: 20 s
def test_workers_know_the_roles_that_another_file_names(made, folder, tmp_path):
    flags = ["--direct_running_mode=multi_processing", "--direct_num_workers=2"]
    assert content(build(folder[0], tmp_path / "set", *flags)) == content(made)


def test_long_conversations_are_cut(made, folder, tmp_path):
    for packing in ("best_fit", "concat", "none"):
        flags = ["--max_length=32", f"--packing={packing}"]
        short = build(folder[0], tmp_path / packing, *flags)
        assert verify_set(short.directory).problems == []
        assert short.stats.total().tokens_in_rows == made.stats.total().tokens
        lost = made.stats.total().trained - short.stats.total().trained
        assert 0 < lost < short.stats.total().segments
        assert all(weights[0] == 0 for _, weights in segments(short))


def test_changed_weights_are_found(made, folder, tmp_path):
    whole = build(folder[0], tmp_path / "set", "--train_on=all")
    assert all(sum(weights) == len(ids) - 1 for ids, weights in segments(whole))
    columns = {
        "segment_ids": np.array([[1, 1, 2, 2, 0]]),
        "loss_weights": np.array([[0, 0, 1, 1, 0]], np.uint8),
    }
    for schema, places in ((made.schema, [2]), (whole.schema, [1, 2])):
        problems = Chat.row_problems(columns, schema, "train")
        told = [problem.message.split(" is ")[0] for problem in problems]
        assert told == [f"loss_weights[{i}]" for i in places]


def test_a_filter_sees_messages_and_tools(made, folder, tmp_path, monkeypatch):
    code = (
        "def choose(document):\n"
        "    asked = '\"content\": \"T' in document['messages']\n"
        "    return 'begins with T' if asked and document['tools'] else None\n"
    )
    (tmp_path / "chat_chooser.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    some = build(folder[0], tmp_path / "set", "--filter=chat_chooser:choose")
    chats = [*folder[1], folder[1][7]]
    due = sum(
        any((m["content"] or "")[:1] == "T" for m in c["messages"]) * ("tools" in c) for c in chats
    )
    reason = "filter:begins with T"
    assert some.stats.all_dropped()[reason] == due > 9
    assert some.stats.total().documents < made.stats.total().documents


def test_flags_of_chat_that_cannot_work(folder, tmp_path, tokenizer_path):
    def refused(*flags, tokenizer=folder[0]):
        with pytest.raises(UsageError) as error:
            build(folder[0], tmp_path / "set", *flags, f"--tokenizer={tokenizer}")
        assert not (tmp_path / "set").exists()
        return str(error.value)

    assert "has no chat template" in refused(tokenizer=tokenizer_path)
    assert "without --end_of_turn='?'" in refused("--end_of_turn=?")
    assert "--min_chars is a flag of build_corpus" in refused("--min_chars=3")
    assert "must be at least 2, to predict a token" in refused("--max_length=1")
    assert "cannot be read" in refused("--chat_template=nowhere")
    assert "is not JSON" in refused("--chat_template_arguments={x}")
    assert "a JSON object of variables" in refused("--chat_template_arguments=[1]")
    assert "without _generation_marks" in refused('--chat_template_arguments={"messages": []}')


def test_training_counts_what_the_assistant_says(made, tmp_path, capsys):
    flags = ["--model=tiny", "--steps=3", "--batch_size=4", f"--output={tmp_path / 'run'}"]
    flax_clm.main([f"--shards={made.directory}", *flags])
    metrics = (tmp_path / "run" / "metrics.jsonl").read_text()
    lines = [json.loads(line) for line in metrics.splitlines()]
    evaluated = [line for line in lines if "accuracy" in line][-1]
    stats = made.stats.split("validation")
    assert evaluated["predicted"] == stats.trained
    assert evaluated["unpredicted"] == stats.tokens_in_rows - stats.trained
    assert "bits_per_byte" not in evaluated
    assert [line["predicted"] > 0 for line in lines if "gradient_norm" in line] == [True] * 3
