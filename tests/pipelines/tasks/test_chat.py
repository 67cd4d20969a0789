"""Chat: where the assistant speaks, as `transformers` has it by `{% generation %}`."""

import json
import re
import string
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tokenizers import Tokenizer, processors
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from tests.tools.chat_styles import STYLES, oracle, styled_tokenizer
from tests.tools.corpus_factory import write_lines
from tests.tools.task_rows import make_rows, segments_of
from textmill.pipelines.build_shards import main
from textmill.pipelines.encoding.tokenizer import LoadedTokenizer, load_tokenizer
from textmill.pipelines.input_options import InputFlags
from textmill.pipelines.inspection.checks.row_checks import row_problems
from textmill.pipelines.inspection.checks.set_check import verify_dataset
from textmill.pipelines.readers.documents import Documents, batch_of
from textmill.pipelines.shards.options import BuildOptions
from textmill.pipelines.shards.schema import schema_of
from textmill.pipelines.tasks.chat import Chat
from textmill.schemas.errors import DataError, UsageError
from textmill.schemas.files.finished import read_dataset
from textmill.schemas.tokenizers.chat_template import ChatTemplate

WEIGHTS = "loss_weights"
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


def load(style, tokenizer, template=None):
    loaded = LoadedTokenizer(tokenizer.to_str().encode(), {"bos": style.bos, "eos": style.eos})
    given = style.plain if template is None else template
    loaded.chat_templates = given if isinstance(given, dict) else {"default": given}
    return loaded


def weigh(style, tokenizer, conversations, *, template=None, tools="", **flags):
    """Ids and weights of each conversation, and why others are refused."""
    loaded = load(style, tokenizer, template)
    task = Chat(**flags)
    options = BuildOptions(
        reading=InputFlags(("i",)), tokenizer="t", output="o", task="chat", settings=task
    )
    schema = schema_of(options, loaded, {"": 1})
    texts = [json.dumps(messages, ensure_ascii=False) for messages in conversations]
    number = len(texts)
    columns = [pa.array(values, pa.large_string()) for values in (texts, [tools] * number)]
    columns = batch_of(columns, task.roles())
    where = {"offsets": np.arange(number), "files": (("in.jsonl", "byte", number),)}
    documents = Documents(columns, 0, (), 0, **where)
    made = task.examples(documents, loaded, schema, np.ones(number, bool))
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
@given(
    contents=st.lists(_CONTENT | st.text(max_size=5), min_size=2, max_size=6),
    system=st.none() | _CONTENT,
)
def test_any_contents(tokenizers, name, contents, system):
    style, tokenizer = STYLES[name], tokenizers(name)
    messages = chat(*contents, system=system)
    due = oracle(style, tokenizer, messages)
    found, rejects = weigh(style, tokenizer, [messages])
    if all(text.strip() for text in contents[1::2]):
        assert (found, rejects) == ([due], {})
    else:
        assert found == [] and rejects[0][0] == "empty_turn"


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
    answers = {"role": "tool", "content": "nothing there"}, {"role": "assistant", "content": "No."}
    conversations = [
        [*chat("Look!"), {"role": "assistant", "content": content, "tool_calls": CALLS}, *answers]
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


# As in templates of models that take images: each part trimmed, marks for what is not text.
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


@given(contents=st.lists(_CONTENT | st.lists(_CONTENT, min_size=1, max_size=3), min_size=2))
def test_parts_go_to_a_template_that_takes_them(tokenizers, contents):
    style, tokenizer = STYLES["ChatML"]._replace(template=_OF_PARTS), tokenizers("ChatML")
    spelt = [c if isinstance(c, str) else "".join(c) for c in contents]
    assume(all(text.strip() for text in spelt[1::2]))
    shaped = [c if isinstance(c, str) else _parts(*c) for c in contents]
    due = oracle(style, tokenizer, chat(*shaped))
    assert weigh(style, tokenizer, [chat(*shaped)]) == ([due], {})
    assert weigh(style, tokenizer, [chat(*shaped)], template=_OF_PARTS) == ([due], {})
    # Parts are joined for a role whose contents are texts.
    for_users = _OF_PARTS.replace("{% if m.content is", "{% if m.role == 'user' or m.content is", 1)
    assert ChatTemplate(for_users, "", {}).takes_parts("user")
    joined = [chat(_parts("a ", "b"), _parts("c ", "d"))]
    assert said(style, tokenizer, joined, template=for_users) == (["c d<|im_end|>"], {})


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
    with pytest.raises(UsageError, match="has no chat template"):
        weigh(style, tokenizer, chats, template={})


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


IMAGE = {"type": "image_url", "image_url": "x.png"}


@pytest.mark.parametrize(
    ("messages", "reason", "says"),
    [
        ([], "not_messages", "or is empty"),
        ({}, "not_messages", "messages is not a list"),
        ("[{", "not_messages", "a text but not JSON"),
        (json.dumps(chat("a", "\ud800")), "lone_surrogate", "^'.*': messages: surrogates not"),
        (["hi"], "not_messages", r"messages\[0\] is not an object with a role"),
        ([{"content": "hi"}], "not_messages", "not an object with a role"),
        ([{"role": "user", "content": 5}], "not_messages", r"content of messages\[0\] is not a"),
        (chat("hi"), "nothing_to_train_on", "has no text to train on"),
        ([{"role": "developer", "content": ""}], "template_failed", "no developer here"),
        (
            chat([*_parts("a"), IMAGE], "b"),
            "not_text",
            r"\[0\] has a part of the type 'image_url'$",
        ),
        ([{"role": "user"}], "no_content", r"messages\[0\] has a null or no content, and no tool"),
        (chat("a", None), "no_content", r"messages\[1\] has a null or no content"),
        (chat(None, "b"), "no_content", r"messages\[0\] has a null or no content"),
        (
            [*chat("a"), {"role": "assistant", "content": None, "tool_calls": []}],
            *("no_content", "and no tool calls"),
        ),
        ([*chat("a"), {"role": "assistant", "refusal": "no"}], "no_content", r"messages\[1\]"),
        (chat("a", ""), "empty_turn", r"messages\[1\] has no text and no tool calls"),
        (chat("a", "b", "c", " \n"), "empty_turn", r"messages\[3\] has no text"),
        (chat("a", [], "c", "d"), "empty_turn", r"messages\[1\] has no text"),
        (chat("a", _parts("", " ")), "empty_turn", r"messages\[1\] has no text"),
    ],
)
def test_refused_conversations(tokenizers, messages, reason, says):
    style, tokenizer = STYLES["Mistral"], tokenizers("Mistral")
    good = chat("a", "b")
    found, refused = weigh(style, tokenizer, [good, messages, good])
    assert len(found) == 2 and set(refused) == {1} and refused[1][0] == reason
    assert re.search(says, refused[1][1])


def test_messages_without_text_that_are_not_trained_on(tokenizers):
    """What comes before the last answer is context, and so is a message of weight 0."""
    style, tokenizer = STYLES["ChatML"], tokenizers("ChatML")
    blank = chat("", "", "c", "d")
    assert said(style, tokenizer, [blank], train_on="last") == (["d<|im_end|>"], {})
    for train_on in ("assistant", "all"):
        assert weigh(style, tokenizer, [blank], train_on=train_on)[1][0][0] == "empty_turn"
    blank[1]["weight"] = 0
    assert said(style, tokenizer, [blank]) == (["d<|im_end|>"], {})


def test_a_conversation_that_takes_too_much_memory_is_named(tokenizers):
    style, tokenizer = STYLES["ChatML"], tokenizers("ChatML")
    huge = "{% if messages[0].content == 'boom' %}{{ messages[0].content * 10 ** 12 }}{% endif %}"
    with pytest.raises(DataError, match="^in.jsonl at byte 1: --chat_template: .* 1,024 MiB; use"):
        weigh(style, tokenizer, [chat("a", "b"), chat("boom", "b")], template=huge + style.plain)


@pytest.fixture
def chat_rows(tokenizers, topics):
    """Makes rows of conversations of two turns."""
    tokenizer = load(STYLES["ChatML"], tokenizers("ChatML"))
    chats = [json.dumps(chat(text[:40], text)) for text in topics[:99] if 0 < len(text) < 300]
    return lambda *flags: make_rows(tokenizer, {"messages": chats}, "--task=chat", *flags)


def test_rows_as_transformers_has_them(tokenizers, topics):
    style, tokenizer = STYLES["ChatML"], tokenizers("ChatML")
    texts = [text for text in dict.fromkeys(topics[:200]) if 0 < len(text) < 300]
    chats = [chat(text[:40], text, *["And?", text[::-1]] * (i % 2)) for i, text in enumerate(texts)]
    tools = [TOOLS if i % 3 else None for i in range(len(texts))]
    fields = {
        "messages": [json.dumps(messages) for messages in [*chats, chats[7], []]],
        "tools": [json.dumps(one) if one else "" for one in [*tools, tools[7], None]],
    }
    made = make_rows(load(style, tokenizer), fields, "--task=chat", "--max_length=1024")
    due = [oracle(style, tokenizer, *both) for both in zip(chats, tools, strict=True)]
    found = list(segments_of(made.columns["train"], "input_ids", WEIGHTS))
    assert sorted(found) == sorted(due) and len(found) > 50
    total = made.shards["train"].statistics
    assert total.trained == sum(sum(weights) for _, weights in due)
    assert total.tokens == total.tokens_in_rows and total.dropped["duplicates"] == 1
    assert made.routed.dropped == {"not_messages": 1}


def test_long_conversations_are_cut(chat_rows):
    whole = chat_rows("--max_length=1024").shards["train"].statistics
    for packing in ("best_fit", "concat", "none"):
        made = chat_rows("--max_length=32", f"--packing={packing}")
        columns, total = made.columns["train"], made.shards["train"].statistics
        assert row_problems(columns, made.schema) == []
        assert total.tokens_in_rows == whole.tokens
        assert 0 < whole.trained - total.trained < total.segments
        weights = [weights for (weights,) in segments_of(columns, WEIGHTS)]
        assert len(weights) == total.segments and not any(own[0] for own in weights)


@pytest.mark.parametrize(("train_on", "places"), [("assistant", [2]), ("all", [1, 2])])
def test_changed_weights_are_found(chat_rows, train_on, places):
    made = chat_rows(f"--train_on={train_on}")
    is_whole = [sum(own) == len(own) - 1 for (own,) in segments_of(made.columns["train"], WEIGHTS)]
    assert all(is_whole) == (train_on == "all")
    columns = {
        "segment_ids": np.array([[1, 1, 2, 2, 0]]),
        WEIGHTS: np.array([[0, 0, 1, 1, 0]], np.uint8),
    }
    problems = Chat.row_problems(columns, made.schema, "train")
    told = [problem.message.split(" is ")[0] for problem in problems]
    assert told == [f"loss_weights[{i}]" for i in places]


def test_a_table_of_conversations_gives_the_rows_of_its_lines(tokenizers, tmp_path):
    """A table has nulls where only other rows have a field."""
    style = STYLES["ChatML"]
    tokenizers("ChatML").save(str(tmp_path / "tokenizer.json"))
    config = {"eos_token": style.eos, "pad_token": style.bos, "chat_template": style.plain}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    chats: list[dict] = [{"messages": chat(f"What is {n}?", f"{n}")} for n in range(30)]
    chats[0]["messages"][1] = {"role": "assistant", "content": None, "tool_calls": CALLS[:1]}
    for n in (1, 2, 3):
        chats[n]["tools"] = [{"name": "look", "parameters": {f"p{n % 2}": "é"}}]
    write_lines(tmp_path / "in.jsonl", chats)
    table = pa.Table.from_pylist([{"tools": None, **one} for one in chats])
    pq.write_table(table, tmp_path / "in.parquet")
    made = []
    for kind in ("jsonl", "parquet"):
        source, output = tmp_path / f"in.{kind}", tmp_path / kind
        main([f"--input={source}", "--task=chat", f"--tokenizer={tmp_path}", f"--output={output}"])
        assert verify_dataset(str(output)).problems == []
        made.append(read_dataset(str(output)))
        assert made[-1].schema.parameters["chat_template"] == style.plain
    sums = [[file.sha256 for file in one.manifest.files if file.split] for one in made]
    assert sums[0] == sums[1]


@pytest.mark.parametrize(
    ("flag", "says"),
    [
        ("--end_of_turn=?", "without --end_of_turn='?'"),
        ("--max_length=1", "must be at least 2, to predict a token"),
        ("--chat_template=nowhere", "cannot be read"),
        ("--chat_template_arguments={x}", "is not JSON"),
        ("--chat_template_arguments=[1]", "a JSON object of variables"),
        ('--chat_template_arguments={"messages": []}', "without _generation_marks"),
    ],
)
def test_flags_of_chat_that_cannot_work(chat_rows, flag, says):
    with pytest.raises(UsageError) as error:
        chat_rows(flag)
    assert says in str(error.value)
