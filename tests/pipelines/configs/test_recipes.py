"""The recipes of corpora: whole settings of build_corpus, in the order in which steps run."""

import pytest
import yaml

from pipelines.corpus.filters import Filters, papers
from pipelines.corpus.options import CorpusOptions
from pipelines.corpus.rules.rule import papers_numbers
from schemas.commands.flag_file import CONFIGS, kinds_of

RECIPES = ("c4", "fineweb", "gopher", "multilingual")
NUMBERS = {
    row: papers_numbers(type(family)) for row, family in Filters().families() if row in papers()
}


def read(name):
    return yaml.safe_load((CONFIGS / f"{name}.yaml").read_text())["build_corpus"]


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_reads_in_the_order_in_which_steps_run(name):
    """Flags stand in it as in the help, whose groups are in that order."""
    order, flags = list(kinds_of(CorpusOptions)), list(read(name))
    assert flags == sorted(flags, key=order.index)


@pytest.mark.parametrize(
    ("name", "whole", "missing"),
    [("fineweb", papers(), {"c4_line_ends"}), ("c4", ("c4",), set()), ("gopher", ("gopher",), {})],
)
def test_numbers_are_those_of_the_paper(name, whole, missing):
    recipe = read(name)
    for row, numbers in NUMBERS.items():
        own = {flag: recipe[flag] for flag in numbers if flag in recipe}
        due = {flag: value for flag, value in numbers.items() if flag not in missing}
        assert own == (due if row in whole else {})
