"""The value of --stages: its text, its mapping, its starts in steps, and what is refused."""

import re
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from textmill.schemas.errors import FieldError, UsageError
from textmill.trainers.data.stages import MixtureStage, Stages

TEXT = "0:web=0.8,code=0.2;90%:web=0.3,math=0.7"


def test_the_text_and_the_mapping_are_one():
    stages = Stages.parse(" 0: web=0.8, code=.2 ; 90%:web=3e-1,math=0.7")
    assert stages == Stages(
        (
            MixtureStage("0", {"web": 0.8, "code": 0.2}),
            MixtureStage("90%", {"web": 0.3, "math": 0.7}),
        )
    )
    assert str(stages) == TEXT and Stages.parse(TEXT) == stages and repr(stages) == repr(TEXT)
    mapping = {0: {"web": "8e-1", "code": 0.2}, "90%": "web=0.3,math=0.7"}
    assert Stages.of_mapping(mapping) == stages == Stages.of_list(TEXT.split(";"))
    assert stages.names == ["web", "code", "math"]
    assert str(Stages.parse("0:data/a=b=1;7:x=2.0")) == "0:data/a=b=1;7:x=2"


NAMES = st.sampled_from(["web", "code", "math"])
SHARES = st.dictionaries(
    NAMES, st.floats(min_value=0, exclude_min=True, allow_infinity=False), min_size=1
)


@given(shares=st.lists(SHARES, min_size=1, max_size=4))
def test_what_is_written_is_read_again(shares):
    stages = Stages(tuple(MixtureStage(str(number), each) for number, each in enumerate(shares)))
    assert Stages.parse(str(stages)) == stages


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "'' is not START:SET=SHARE,...; give 0:web="),
        ("web=0.8", "'web=0.8' is not START:SET=SHARE,..."),
        ("0:", "the stage at 0 has no dataset"),
        ("0:web=1;", "'' is not START:SET=SHARE,..."),
        ("0:web", "'web' is not SET=SHARE"),
        ("0:=1", "'=1' is not SET=SHARE"),
        ("0:web=1,,code=1", "'' is not SET=SHARE"),
        ("0:web=much", "the share 'much' of 'web' is not a number"),
        ("0:web=nan", "the share 'nan' of 'web' is not a number"),
        ("0:web=1e999", "the share inf of web must be above 0 and finite"),
        ("0:web=1e1000000000", "the share '1e1000000000' of 'web' is not a number"),
        ("0:web=0", "the share 0 of web must be above 0 and finite; leave web out of a stage that"),
        ("0:web=-0.5", "the share -0.5 of web must be above 0"),
        ("0:web=1,web=2", "the stage at 0 names web twice"),
        ("10:web=1", "the first stage starts at 10: it must start at 0"),
        ("5%:web=1", "the first stage starts at 5%: it must start at 0"),
        ("0:web=1;9:web=1;9:code=1", "a stage at 9 follows one at 9: starts must ascend"),
        ("0:web=1;50%:web=1;20%:code=1", "a stage at 20% follows one at 50%: starts must ascend"),
        ("0:web=1;2B:web=1;900M:code=1", "a stage at 900M follows one at 2B: starts must ascend"),
        ("0:web=1;0%:code=1", "a stage at 0% follows one at 0: starts must ascend"),
        (
            "0:web=1;soon:web=1",
            "'soon' is not a start of a stage; give a step, 90% or 10B (tokens)",
        ),
        ("0:web=1;-5:web=1", "'-5' is not a start of a stage"),
        ("0:web=1;1e5:web=1", "'1e5' is not a start of a stage"),
        ("0:web=1;2.5:web=1", "'2.5' is not a whole number of steps"),
    ],
)
def test_wrong_texts(text, reason):
    with pytest.raises(FieldError, match=re.escape(reason)) as refused:
        Stages.parse(text)
    assert (
        str(refused.value).startswith(f"{refused.value.value}: ") and refused.value.exit_code == 2
    )


@pytest.mark.parametrize(
    ("mapping", "reason"),
    [
        ({}, "there is no stage"),
        ({0: {}}, "the stage at 0 has no dataset"),
        ({0: {"web": True}}, "the share True of 'web' is not a number"),
        ({0: {"web": "one"}}, "the share 'one' of 'web' is not a number"),
        ({0: None}, "'None' is not SET=SHARE"),
        ({0: {"web": float("inf")}}, "the share inf of web must be above 0"),
    ],
)
def test_wrong_mappings(mapping, reason):
    with pytest.raises(FieldError, match=re.escape(reason)):
        Stages.of_mapping(mapping)


def in_steps(text: str, **length) -> list[int]:
    """Starts where a step has 100 tokens of a and 300 of b."""
    means = {"a": 100, "b": 300}

    def tokens_per_step(stage: MixtureStage) -> Fraction:
        return Fraction(sum(means[name] for name in stage.shares), len(stage.shares))

    return Stages.parse(text).in_steps(tokens_per_step, **length).starts


def test_starts_in_steps():
    """After 1,000 tokens a's stage has 10 steps; 2,000 more are 6.67 steps of b."""
    assert in_steps("0:a=1;7:b=1") == [0, 7]
    assert in_steps("0%:a=1;7:b=1;90%:a=1", steps=1000) == [0, 7, 900]
    assert in_steps("0:a=1;33%:b=1", steps=10) == [0, 4], "4 of 10 are the first that are 33%"
    assert in_steps("0:a=1;1K:b=1;3K:a=1,b=1;3.25K:a=1") == [0, 10, 17, 18]
    assert in_steps("0:a=1;1K:b=1;50%:a=1", tokens=2600) == [0, 10, 11]
    assert in_steps("0:a=1;5:b=1;1.1K:a=1", tokens=2600) == [0, 5, 7]


@pytest.mark.parametrize(
    ("text", "length", "reason"),
    [
        ("0:a=1;90%:b=1", {}, "90% of the run needs its length: give --steps or --tokens"),
        ("0:a=1;50:b=1;10%:a=1", {"steps": 100}, "a stage at 10% (step 10) follows one at step 50"),
        ("0:a=1;1K:b=1;10:a=1", {}, "a stage at 10 (step 10) follows one at step 10"),
        ("0:a=1;50:b=1;1K:a=1", {}, "a stage at 1K (step 37) follows one at step 50"),
    ],
)
def test_starts_that_no_run_has(text, length, reason):
    with pytest.raises(UsageError, match=re.escape(f"--stages={text}: {reason}")):
        in_steps(text, **length)


def test_numbers_and_ends():
    asked = Stages.parse("0:a=1;50%:b=1;90%:a=1")
    stages = asked.in_steps(lambda stage: Fraction(1), steps=10)
    assert [stages.number_at(step) for step in (0, 1, 5, 6, 9, 10, 99)] == [1, 1, 1, 2, 2, 3, 3]
    assert str(stages.until(5)) == "0:a=1" and str(stages.until(6)) == "0:a=1;5:b=1"
    stages.check_end(10, asked)
    with pytest.raises(UsageError, match="the stage at 90% begins after the end of the run, which"):
        stages.check_end(9, asked)


def test_unknown_names():
    with pytest.raises(
        UsageError,
        match=re.escape(
            f"--stages={TEXT}: there is no dataset 'math'; --shards has web, code. "
            "--shards=math=DIR,... gives names"
        ),
    ):
        Stages.parse(TEXT).check_names(["web", "code"])
