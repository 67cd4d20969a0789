"""Turns by hand, in templates that trim, test, drop or reorder contents."""

import pytest

from textmill.pipelines.tasks.chat_turns import BadConversation, Conversation, find_turn_ends
from textmill.schemas.errors import DataError, UsageError
from textmill.schemas.tokenizers.chat_template import ChatTemplate, TemplateFailed

TOKENS = ("<e>", "<e>x", "</s>")


def each(said: str, prompt: str = "A:") -> str:
    """A template in which the assistant says `said`, a Jinja expression of `c`, the content."""
    return (
        "{% for m in messages %}{% set c = m.content %}{{ m.role[0] | upper + ':' }}"
        f"{{% if m.role == 'assistant' %}}{{{{ {said} }}}}{{% else %}}{{{{ c }}}}{{% endif %}}<e>\n"
        "{% endfor %}{% if add_generation_prompt %}" + prompt + "{% endif %}"
    )


def turns(text: str, *contents: str | dict, given: str = "") -> list[str]:
    """The turns of the assistant in a conversation of user and assistant in turn."""
    template = ChatTemplate(text, "t", {"eos_token": "</s>"})
    messages = [
        {"role": ("user", "assistant")[i % 2], **(c if isinstance(c, dict) else {"content": c})}
        for i, c in enumerate(contents)
    ]
    talk = Conversation(template, messages, None)
    found = talk.turns(find_turn_ends(template, TOKENS, given))
    return [talk.text[turn.start : turn.stop] for turn in found]


def refusal(text: str, *contents: str | dict) -> str:
    with pytest.raises(BadConversation) as error:
        turns(text, *contents)
    return error.value.args[0]


SPACED = "\n \n b \n\t"


@pytest.mark.parametrize(
    ("expression", "left"),
    [
        ("c", SPACED),
        ("c | trim", "b"),
        ("c.lstrip('\\n')", " \n b \n\t"),
        ("c.rstrip()", "\n \n b"),
        ("c.strip('\\n')", " \n b \n\t"),
        ("c.strip('\\n\\t')", " \n b "),
        ("c.rstrip('\\t') ~ '\\t'", None),
    ],
)
def test_white_space_that_a_template_trims(expression, left):
    if left is None:  # what is trimmed and put back is the template's: an end of turn
        assert turns(each(expression), "a", "b", "a", "b ") == ["b\t<e>", "b \t<e>"]
        return
    due = [f"{left}<e>", "b<e>"]
    assert turns(each(expression), SPACED, SPACED, "b", "b") == due
    # It is the content's place that counts, not that of the generation prompt.
    assert turns(each(expression, prompt="A: "), "a", SPACED) == due[:1]


@pytest.mark.parametrize("expression", ["c", "c | trim", "c.rstrip()"])
def test_long_conversations_are_rendered_a_few_times(expression, monkeypatch):
    """Whatever white space the template trims, and whatever else messages have that it ignores."""
    rendered, render = [], ChatTemplate.render
    monkeypatch.setattr(
        ChatTemplate, "render", lambda *args, **more: rendered.append(1) or render(*args, **more)
    )
    contents = [{"content": f" {i} \n", "id": i + 1} for i in range(300)]
    due = {"c": " {} \n<e>", "c | trim": "{}<e>", "c.rstrip()": " {}<e>"}[expression]
    assert turns(each(expression), *contents) == [due.format(i) for i in range(1, 300, 2)]
    assert len(rendered) < 20


def test_contents_that_repeat_one_another_and_the_template():
    assert turns(each("c"), "b", "b", "A:b<e>", "A:b<e>\nU:b<e>") == ["b<e>", "A:b<e>\nU:b<e><e>"]
    # Probes come from a block of 2**14 private characters that the text has not.
    private = "".join(map(chr, (0xE000, *range(0xF0000, 0x110000, 1 << 15), 0x10BFFD)))
    assert turns(each("c"), private, private) == [private + "<e>"]
    all_blocks = "".join(map(chr, range(0xF0000, 0x110000, 1 << 14)))
    assert refusal(each("c"), all_blocks, "b") == "unclear_turns"


def test_contents_that_a_template_looks_at():
    last_part = "c.split('</think>')[-1]"
    assert turns(each(last_part), "a", "x</think>b", "a", "c") == ["b<e>", "c<e>"]
    assert turns(each("c if c else ''"), "a", "", "a", " b") == ["<e>", " b<e>"]
    assert refusal(each("'[' + c + ']' if c else ''"), "a", "", "a", " b") == "unclear_turns"
    # The text before a message is not the prompt, so its beginning is unknown.
    assert refusal(each(last_part, prompt="A:<think>"), "a", "x</think>b") == "unclear_turns"
    assert refusal(each(last_part, prompt="A:b<e>"), "a", "x</think>b") == "unclear_turns"
    assert (
        refusal(each("c.strip()[1:] if 'x' in c else c", prompt="A:<think>"), "a", " xb")
        == "unclear_turns"
    )
    # A content of white space has its place nevertheless.
    assert turns(each("c | trim", prompt="A:<think>"), "a", " \n") == ["<e>"]
    # Messages before depend on those after.
    forgets = each("c if loop.last else c.split('</think>')[-1]")
    assert refusal(forgets, "a", "x</think>b", "a", "c") == "unclear_turns"


def test_fields_beside_the_content():
    text = each("(m.thought or '') ~ c")
    assert turns(text, "a", {"content": "b", "thought": "hm "}) == ["hm b<e>"]
    assert turns(text, "a", {"content": " b", "id": "17", "date": None}) == [" b<e>"]
    assert turns(each("c or m.call"), "a", {"content": None, "call": "f()"}) == ["f()<e>"]


def test_contents_in_parts():
    whole = "(c if c is string else c | map(attribute='text') | join) | trim"
    parts = [{"type": "text", "text": text} for text in (" ", "\n b", "c ", " ")]
    text = each(whole, prompt="A:<think>")
    assert turns(text, "a", {"content": parts}, "a", {"content": parts[1:3]}) == ["bc<e>"] * 2


def test_what_a_template_marks_as_generated():
    text = (
        "{% for m in messages %}{{ m.role }}:{% if m.role == 'user' %}{{ m.content }}{% else %}"
        "{% generation %}{{ m.content }}{% endgeneration %}"
        "{% generation %}{{ '<e>' if m.content != 'd' }}{% endgeneration %}"
        "{{ '<e>' if m.content == 'd' }}{% endif %}\n{% endfor %}"
    )
    assert turns(text, "a", "b", "a", "c") == ["b<e>", "c<e>"]
    assert refusal(text, "a", "b", "c", "d") == "generation_differs"


def test_other_orders_are_refused():
    text = each("c").replace("in messages", "in messages | reverse")
    template = ChatTemplate(text, "t", {})
    with pytest.raises(UsageError, match="changes the order"):
        find_turn_ends(template, TOKENS, "")


def test_a_turn_without_its_end_is_refused():
    text = each("c").replace("<e>", "{{ '<e>' if loop.index != 6 }}")
    assert turns(text, "a", "b", "c", "d") == ["b<e>", "d<e>"]
    with pytest.raises(BadConversation) as error:
        turns(text, *"abcdefgh")
    assert error.value.args == ("no_end_of_turn", "messages[5] is followed by '\\nU:g<e'")
    assistants_only = (
        "{% for m in messages %}{{ m.content }}"
        "{{ '<e>' if m.role == 'assistant' and loop.index != 6 }}{% endfor %}"
    )
    assert refusal(assistants_only, *"abcdefgh") == "no_end_of_turn"
    last_only = (
        "{% for m in messages %}{{ m.content }}{% endfor %}{{ '<e>' if messages | length != 6 }}"
    )
    assert refusal(last_only, *"abcdef") == "no_end_of_turn"


def test_ends_of_turn():
    plain = "{% for m in messages %}{{ m.content }}|{% endfor %}"
    assert turns(plain, "a", "b", given="|") == ["b|"]
    assert turns(each("c") + "</s>", "a", "b") == ["b<e>"]
    assert turns(each("c ~ '<e>x'"), "a", "b") == ["b<e>x"], "the longest token"
    assert turns(each("c ~ '\n '"), "a", "b") == ["b\n <e>"]
    last_only = "{% for m in messages %}{{ m.content }}{% endfor %}{{ eos_token }}"
    assert turns(last_only, "a", "b", "c", "d") == ["b", "d</s>"]
    text = "{% for m in messages %}{{ m.content }}<e>{% endfor %}"  # no text between turns
    assert turns(text, "a", "b", {"role": "assistant", "content": "c"}) == ["b<e>", "c<e>"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "{% for m in messages %}{{ m.content }}|{% endfor %}",
            "writes '|' .*, without a special token",
        ),
        ("{{ messages[0].content }}", "renders the messages alpha, bravo, .* as 'alpha'"),
        ("{{ strftime_now('%Y') }}", "fails on .*'strftime_now' is undefined"),
        ("{{ raise_exception('no') }}", "fails on .*TemplateError: no"),
        ("{{ messages.append(1) }}", "fails on .*SecurityError"),
        ("{{ ''.__class__.__mro__ }}", "fails on .*SecurityError"),
        (each("c").replace("{{ c }}", "{% generation %}{{ c }}{% endgeneration %}"), "in {% gene"),
    ],
)
def test_templates_that_do_not_serve(text, says):
    with pytest.raises(UsageError, match=says):
        find_turn_ends(ChatTemplate(text, "t", {}), TOKENS, "")
    with pytest.raises(
        UsageError, match="without --end_of_turn='§'|fails on|renders|in {% gene|writes"
    ):
        find_turn_ends(ChatTemplate(text, "t", {}), TOKENS, "§")


@pytest.mark.parametrize(
    "text",
    [
        "{{ messages[0].content * 10 ** 12 }}",
        "{{ '%4000000000d' % 1 }}",  # which Jinja computes when it compiles
        "{% set n = namespace(t='a') %}"
        "{% for i in range(40) %}{% set n.t = n.t ~ n.t %}{% endfor %}",
    ],
)
def test_templates_without_bounds_of_memory(text):
    # Which of the two it is depends on how busy the machine is.
    with pytest.raises(
        DataError, match="--chat_template: .* takes more than (1,024 MiB|10 s); use"
    ):
        find_turn_ends(ChatTemplate(text, "t", {}), TOKENS, "")
    assert (
        ChatTemplate("{{ messages[0].content }}", "t", {}).render([{"content": "still"}]) == "still"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        f"{'{% for i in range(99999) %}' * 3}{'{% endfor %}' * 3}",
        "{{ 7 ** (7 ** 11) }}",  # which Jinja computes when it compiles
    ],
)
def test_templates_without_bounds_of_time(text):
    with pytest.raises(DataError, match="--chat_template: .* takes more than 10 s; use"):
        find_turn_ends(ChatTemplate(text, "t", {}), TOKENS, "")


def test_what_a_template_sees():
    text = (
        "{% if strftime_now is defined %}now{% endif %}{{ [tools, documents, x] }}"
        "{{ {'b': 'é<', 'a': 1} | tojson }}{% if add_generation_prompt %}!{% endif %}\n"
        "  {% for m in messages %}\n"
        "{{ m }}\n"
        "  {% break %}\n"
        "  {% endfor %}\n"
    )
    template = ChatTemplate(text, "t", {"x": "y"})
    rendered = template.render([{"role": "a"}, {"role": "b"}], prompt=True)
    assert rendered == "[None, None, 'y']{\"b\": \"é<\", \"a\": 1}!{'role': 'a'}\n"
    for drawn in ("{{ [1] | random }}", "{{ lipsum() }}"):
        with pytest.raises((UsageError, TemplateFailed)):
            ChatTemplate(drawn, "t", {}).render([])
    with pytest.raises(TemplateFailed, match="surrogates not allowed"):
        ChatTemplate("{{ x }}", "t", {"x": "\ud800"}).render([])
