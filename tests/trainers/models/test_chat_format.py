"""Chat templates of datasets and of published weights."""

import json
from dataclasses import replace

import pytest

from tests.tools.clm_factory import chat_schema
from tests.tools.shard_factory import tokenizer_json
from textmill.schemas.errors import UsageError
from textmill.schemas.tokenizers.chat_template import ChatTemplate
from textmill.trainers.models.chat_format import (
    ChatFormat,
    exported_template,
    format_of_directory,
    format_of_schema,
)

TEMPLATE = "{{ bos_token }} {{ messages[0].content }}{% if thinks %} w9{% endif %} {{ more }}"
ARGUMENTS = {"thinks": False, "more": [None, "it's", 1.5, {"a": True}]}


def schema_with(**parameters):
    parameters = {**chat_schema().parameters, "chat_template": TEMPLATE, **parameters}
    return replace(chat_schema(), parameters=parameters, fingerprint="")


def test_a_dataset_s_template_has_roles_and_arguments():
    schema = schema_with(chat_template_arguments=json.dumps(ARGUMENTS), end_of_turn="w7")
    chat = format_of_schema(schema, tokenizer_json(50))
    roles = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>"}
    roles.update(unk_token="<unk>", mask_token="<mask>")
    assert chat == ChatFormat(TEMPLATE, {**roles, **ARGUMENTS}, "w7")
    assert chat.prompt("w5") == "<s> w5 [None, \"it's\", 1.5, {'a': True}]"


def test_an_exported_template_keeps_the_arguments():
    """As defaults, which a caller of apply_chat_template may change."""
    assert exported_template(schema_with()) == TEMPLATE
    schema = schema_with(chat_template_arguments=json.dumps(ARGUMENTS))
    due = format_of_schema(schema, tokenizer_json(50)).prompt("w5")
    messages = [{"role": "user", "content": "w5"}]
    for given, text in (({}, due), ({"thinks": True}, due.replace("w5", "w5 w9"))):
        template = ChatTemplate(exported_template(schema), "here", {"bos_token": "<s>", **given})
        assert template.render(messages, prompt=True) == text


def test_published_weights_have_one_in_either_file(tmp_path):
    assert format_of_directory(tmp_path) is None
    path = tmp_path / "tokenizer_config.json"
    tokens = {"bos_token": "<s>", "eos_token": {"content": "</s>"}, "pad_token": None}
    names = [{"name": "tool_use", "template": "x"}, {"name": "default", "template": "t"}]
    variables = {"bos_token": "<s>", "eos_token": "</s>"}
    for template, found in (("t", "t"), (names, "t"), (names[:1], None), (None, None)):
        path.write_text(json.dumps({**tokens, "chat_template": template}))
        assert format_of_directory(tmp_path) == (found and ChatFormat(found, variables))
    (tmp_path / "chat_template.jinja").write_text("file")
    assert format_of_directory(tmp_path) == ChatFormat("file", variables)


def test_a_template_that_fails_names_the_message():
    chat = ChatFormat("{{ raise_exception('no users') }}", {})
    with pytest.raises(UsageError, match="^MESSAGE: the template fails: .*no users"):
        chat.prompt("Hi")
    assert chat.end_ids(None, (2,)) == ()
