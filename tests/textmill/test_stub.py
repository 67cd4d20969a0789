"""What editors know of the functions is what the functions take."""

import ast

import textmill as tm
from tests.tools.api_stub import PATH, write_stub


def test_the_stub_is_up_to_date():
    assert PATH.read_text(encoding="utf-8") == write_stub(), "run python -m tests.tools.api_stub"


def test_the_stub_has_every_name():
    """And every type of a value in it is a name of textmill."""
    tree = ast.parse(PATH.read_text(encoding="utf-8"))
    names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):
            names |= {alias.asname for alias in node.names if alias.asname}
    assert names - {"Task"} == {*tm.__all__}
