"""Each field of each command: a value of Python or YAML is the value of its text in argv."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

import textmill as tm
from textmill.functions import TRAINERS, keywords_of
from textmill.schemas.commands.flag_file import read_config
from textmill.schemas.commands.help import Help
from textmill.schemas.commands.options import Given, fields_of, is_switch, parse_options
from textmill.schemas.commands.values import kind_of, rule_of

PAGE = Help("pipelines.thing", "", "", "", "")
COMMANDS = ("build_corpus", "train_tokenizer", "build_shards", "train_quality_model", *TRAINERS)
LIMITS = [({2: 0.2, 3: 0.1}, "2:0.2,3:0.1")]
YES = [(True, "yes"), (False, "no"), ("yes", "yes")]
TEXTS = [(["a, b", "c"], '"a, b",c'), (["a"], "a"), ("a,b", "a,b")]
COUNTS = [(3, "3"), ("4", "4")]
# Values of fields that have a text of their own, and this text.
OF_RULES: dict[str, list[tuple[Any, str]]] = {
    "assume_bytes": [(3000, "3000"), ("2TB", "2TB")],
    "bands": [("20x6", "20x6"), (tm.Bands(20, 6), "20x6")],
    "c4_line_ends": YES,
    "c4_line_phrases": TEXTS,
    "c4_notes": YES,
    "c4_page_phrases": TEXTS,
    "chat_template_arguments": [({"a": False, "b": [1]}, '{"a": false, "b": [1]}')],
    "class_names": TEXTS[:1],
    "classes": TEXTS[:1],
    "decontaminate_fields": TEXTS,
    "duplicate_paragraphs": [("line:3", "line:3"), (tm.Paragraphs("line", 3), "line:3")],
    "file_format": TEXTS,
    "gopher_max_repeated_ngrams": [({5: 0.15, 6: 0.14}, "5:0.15,6:0.14")],
    "gopher_max_top_ngrams": LIMITS,
    "keep_fields": [(["url", "b:c"], "url,b:c"), ((tm.KeptField("b", "c"),), "b:c")],
    "language": [({"nb": 0.5, "en": 1}, "nb:0.5,en:1"), (["nb", "en:0.5"], "nb,en:0.5")],
    "near_duplicates": [("jaccard:0.8", "jaccard:0.8"), (tm.Jaccard(0.8), "jaccard:0.8")],
    "normalizer": [(["nfc", "lowercase"], "nfc,lowercase"), ("nfc", "nfc")],
    "num_files": COUNTS,
    "num_shards": [*COUNTS, ({"train": 3, "test": 1}, "train:3,test:1")],
    "pattern": [("gpt2", "gpt2"), (tm.Pattern("gpt2"), "gpt2")],
    "qa_template": [("{context} {question} {answer}", "{context} {question} {answer}")],
    "quality": TEXTS,
    "respect": TEXTS,
    "shingle": [("char:24", "char:24"), (tm.Shingle("char", 24), "char:24")],
    "special_tokens": TEXTS,
    "stages": [
        ({0: {"a": 0.5, "b": "1"}, "90%": {"b": 1}}, "0:a=0.5,b=1;90%:b=1"),
        (["0:a=1", "10B:b=1"], "0:a=1;10B:b=1"),
        (tm.Stages.parse("0:a=1"), "0:a=1"),
    ],
    "splits": [({"train": 0.9, "test": "1e-1"}, "train:0.9,test:0.1")],
}


def values_of(field: dataclasses.Field[Any]) -> Iterator[tuple[Any, list[str]]]:
    """Values of a field, and the arguments that are the same."""

    def typed(*texts: str) -> list[str]:
        return [f"--{field.name}={text}" for text in texts]

    rule, kind = rule_of(field.type), kind_of(field.type)
    arguments = getattr(kind, "__args__", ())
    if is_switch(field):
        yield from ((True, [f"--{field.name}"]), (False, [f"--no_{field.name}"]))
    elif rule is not None:
        yield from ((value, typed(text)) for value, text in OF_RULES[field.name])
    elif getattr(kind, "__origin__", None) is tuple:
        yield from ((["a", "b, c"], typed("a", "b, c")), ("a", typed("a")), (3, typed("3")))
    if rule is None and type(None) in arguments:
        yield "None", typed("None")
        [kind] = (each for each in arguments if each is not type(None))
        arguments = getattr(kind, "__args__", ())
    if arguments and all(isinstance(each, str) for each in arguments):  # of Literal
        yield from ((each, typed(each)) for each in arguments)
    if kind is int:
        yield from ((each, typed(str(each))) for each in (3, "4", -1, 1 << 70))
    if kind is float:
        yield from ((each, typed(str(each))) for each in (1, 0.25, "1e-4", 10**350))
    if kind is str:
        yield from ((each, typed(str(each))) for each in ("a: #b", "no", "", 3, 0.5))
        yield from ((["a", "b"], typed("a,b")), ({"a": 1, "b": 0.5}, typed("a:1,b:0.5")))


@pytest.mark.parametrize("command", COMMANDS)
def test_every_field_has_one_value_in_three_places(command, tmp_path):
    path = tmp_path / "job.yaml"
    found = 0
    for name, field in fields_of(*keywords_of(command).options()).items():
        fields: list[Any] = [(name, field.type)]
        if is_switch(field):  # without a default, it would take a value
            fields = [(name, field.type, False)]
        one = dataclasses.make_dataclass("One", fields, frozen=True)
        for value, argv in values_of(field):
            expected = getattr(parse_options(argv, PAGE, one), name)
            of_python = parse_options([], PAGE, one, {name: Given(value)})
            assert getattr(of_python, name) == expected, (name, value)
            assert type(getattr(of_python, name)) is type(expected), (name, value)
            if type(value) in (bool, int, float, str, list, dict):
                path.write_text(yaml.safe_dump({name: value}), encoding="utf-8")
                rest, given = read_config([f"--config={path}"], "thing", lambda kind=one: (kind,))
                assert parse_options(rest, PAGE, one, given) == of_python, (name, value)
            found += 1
    assert found > 100
