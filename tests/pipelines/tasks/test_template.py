"""Templates: the parts that they are cut into, and errors of those that cannot work."""

import pytest

from pipelines.tasks.questions import Slot, parse_template
from schemas.errors import UsageError


def test_white_space_goes_with_the_field():
    assert parse_template("Question: {question} Context:\n{context}answer:  {answer}") == (
        Slot("Question:", " ", "question"),
        Slot(" Context:", "\n", "context"),
        Slot("answer:", "  ", "answer"),
    )


def test_any_order_no_words_and_braces_that_are_text():
    assert parse_template("{{C}} {context} {{{question}}} {answer}") == (
        Slot("{C}", " ", "context"),
        Slot(" {", "", "question"),
        Slot("}", " ", "answer"),
    )


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{question} {context} {answer}.", "it must end with {answer}"),
        ("{answer} {question} {context}", "it must end with {answer}"),
        ("{question} {answer}", "{context} occurs 0 times, not once"),
        ("{question} {question} {context} {answer}", "{question} occurs 2 times, not once"),
        ("{title} {question} {context} {answer}", "there is no {title}, only {question}, {conte"),
        ("{} {question} {context} {answer}", "there is no {}, only"),
        ("{question:>5} {context} {answer}", "there is no {question}"),
        ("{question!r} {context} {answer}", "there is no {question}"),
        ("{question", "write {{ for a literal brace"),
        ("question}", "write {{ for a literal brace"),
        ("", "{question} occurs 0 times"),
    ],
)
def test_what_cannot_work_is_said(template, said):
    with pytest.raises(UsageError) as error:
        parse_template(template)
    assert said in str(error.value)
    assert f"--qa_template={template!r}" in str(error.value)
