"""Wrong values of options, from the command line, from a file and from Python: one refusal.

Each case: the field, its value as text, the value in Python, and the reason of the refusal.
"""

import dataclasses

import pytest

from textmill.pipelines.build_corpus import BUILDER
from textmill.pipelines.corpus.near_duplicates.flags import Bands, Jaccard, Shingle
from textmill.pipelines.corpus.options import KeptField, Paragraphs
from textmill.pipelines.corpus.rules.rule import RuleGroup
from textmill.schemas.commands.flag_file import config_bytes
from textmill.schemas.errors import FieldError, UsageError

WRONG = [
    ("near_duplicates", "jaccard:2", lambda: Jaccard(2), "give jaccard:S with a similarity S"),
    ("near_duplicates", "0.8", "0.8", "give jaccard:S with a similarity S"),
    ("shingle", "line:5", lambda: Shingle("line", 5), "give word:5 for runs of five words"),
    ("bands", "64x64", lambda: Bands(64, 64), "give bands x hashes per band"),
    ("bands", "16x7", lambda: Bands(16, 7), "it needs near_duplicates"),
    ("duplicate_paragraphs", "word:3", lambda: Paragraphs("word", 3), "give paragraph:N or line:N"),
    ("duplicate_paragraphs", "line:0", lambda: Paragraphs("line", 0), "give paragraph:N or line:N"),
    ("keep_fields", "url,5b", ["url", "5b"], "'5b' is not FIELD or NAME:FIELD"),
    ("keep_fields", "url,text", ["url", KeptField("text")], "the corpus already has a column text"),
    ("num_files", "0", 0, "give 1 to 65,536"),
    ("num_files", "few", "few", "give auto, or a number"),
    ("assume_bytes", "2TX", "2TX", "give a size such as 500GB or 2TB"),
    ("html", "text", "text", "choose one of main, markdown, all, trafilatura"),
    ("document", "page", "page", "choose one of file, paragraph, line"),
    ("quality", "gopher,dolma", ["gopher", "dolma"], "'dolma' is unknown; give one or more of"),
    ("gopher_max_top_ngrams", "2:0.2,3", "2:0.2,3", "'3' is not WORDS:SHARE"),
    ("gopher_max_top_ngrams", "1:0.2", {1: 0.2}, "'1:0.2' is not WORDS:SHARE"),
    ("c4_line_ends", "maybe", "maybe", "choose one of yes, no"),
    ("c4_min_sentences", "-2", -2, "give a number of at least 0 and below 2**63"),
    ("language", "nb:0.5,en:2", {"nb": 0.5, "en": 2}, "'en:2' is not CODE or CODE:PROBABILITY"),
    ("language_identifier", "quick", "quick", "it needs language"),
    ("max_repetition", "1.5", 1.5, "give a share from 0 to 1"),
    ("pii", "mask", "mask", "choose one of keep, replace"),
    ("max_rejects", "many", "many", "not a whole number"),
]


def with_value(options, name, value):
    """The options with a different value of a field, which may be in a group of them."""
    for field in dataclasses.fields(options):
        old = getattr(options, field.name)
        if field.name == name and not isinstance(old, RuleGroup):
            return dataclasses.replace(options, **{name: value})
        if dataclasses.is_dataclass(old) and name in str(old):
            return dataclasses.replace(options, **{field.name: with_value(old, name, value)})
    raise AssertionError(name)


def parse(*argv):
    return BUILDER.parse(["--input=a", "--output=b", *argv])[0]


@pytest.mark.parametrize("name, text, value, reason", WRONG)
def test_a_wrong_value_is_refused_from_everywhere(name, text, value, reason, tmp_path):
    file = tmp_path / "job.yaml"
    file.write_text(f"{name}: '{text}'\n")
    with pytest.raises(UsageError) as of_argv:
        parse(f"--{name}={text}")
    with pytest.raises(UsageError) as of_yaml:
        parse(f"--config={file}")
    with pytest.raises(FieldError) as of_python:
        with_value(parse(), name, value() if callable(value) else value)
    assert str(of_argv.value).startswith(f"--{name}={text}: {reason}")
    assert str(of_yaml.value) == f"{file}: {of_argv.value.in_python()}"
    assert of_python.value.in_python().startswith(f"{name}={text}: {reason}") or (
        not of_python.value.field and of_python.value.reason.startswith(reason)
    )


def test_values_of_python_are_the_same_options():
    argv = ("--near_duplicates=jaccard:0.80", "--keep_fields=url,title:og:title", "--num_files=3")
    more = ("--duplicate_paragraphs=line:5", "--assume_bytes=2TB", "--dry_run")
    options = parse(*argv, *more)
    assert options.near.near_duplicates == Jaccard(0.8) and options.num_files == 3
    assert options.keep_fields == (KeptField("url"), KeptField("title", "og:title"))
    assert options.duplicate_paragraphs == Paragraphs("line", 5)
    assert options.assume_bytes == 2 * 10**12
    for name, value in {
        "near_duplicates": "jaccard:0.8",
        "keep_fields": ["url", "title:og:title"],
        "num_files": "3",
        "input": "a",
    }.items():
        assert with_value(options, name, value) == options


def test_a_phrase_may_hold_a_comma(tmp_path):
    file = tmp_path / "job.yaml"
    file.write_text("c4_line_phrases: ['yes, we use cookies', javascript]\n")
    of_yaml = parse(f"--config={file}")
    options = parse('--c4_line_phrases="yes, we use cookies",javascript')
    assert options == of_yaml
    assert options.filters.c4.c4_line_phrases == ("yes, we use cookies", "javascript")
    file.write_bytes(config_bytes("pipelines.build_corpus", options))
    assert BUILDER.parse([f"--config={file}", "--output=b"])[0] == options
