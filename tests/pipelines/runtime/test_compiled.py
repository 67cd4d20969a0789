"""Machine code that is kept on disk: used while what it was made of stays the same."""

import os

import numpy as np
import pytest

from tests.tools.places import ROOT
from tests.tools.python_process import run_python
from textmill.pipelines.runtime import compiled

FILES = {
    "numbers.py": "import numpy as np\nSTEP = 2\nTABLE = np.array([10, 20])\n",
    "helper.py": """
from loops import numbers
from textmill.pipelines.runtime.compiled import inner

@inner
def add(a):
    return a + numbers.STEP
""",
    "doubled.py": """
from numba import types
from numba.extending import intrinsic

@intrinsic
def double(context, number):
    def build(context, builder, signature, values):
        return builder.add(values[0], values[0])
    return number(number), build
""",
    "entries.py": """
from loops.doubled import double
from loops.helper import add
from loops.numbers import TABLE
from textmill.pipelines.runtime.compiled import entry

@entry("int64(int64)")
def run(a):
    return double(add(a)) + TABLE[1]
""",
}
RUN = "from loops.entries import run; print(run(3))"


@pytest.mark.slow
def test_a_change_in_another_file_is_seen(tmp_path):
    package = tmp_path / "loops"
    package.mkdir()
    for name, text in FILES.items():
        (package / name).write_text(text)

    def run() -> tuple[int, int]:
        """The result of the loop, and the number of pieces of machine code that are kept then."""
        paths = os.pathsep.join([str(tmp_path), str(ROOT)])
        done = run_python("-B", "-c", RUN, PYTHONPATH=paths, NUMBA_CACHE_DIR=str(tmp_path / "kept"))
        assert not done.returncode, done.stderr
        return int(done.stdout), len(list((tmp_path / "kept").rglob("*.nbc")))

    def change(name: str, old: str, new: str) -> None:
        text = (package / name).read_text()
        assert old in text
        (package / name).write_text(text.replace(old, new))

    assert run() == (2 * (3 + 2) + 20, 1)
    assert run() == (30, 1)  # the same machine code
    change("numbers.py", "STEP = 2", "STEP = 5")
    assert run() == (2 * (3 + 5) + 20, 2)
    change("numbers.py", "20]", "70]")
    assert run() == (2 * (3 + 5) + 70, 3)
    change("helper.py", "a + ", "a * ")
    assert run() == (2 * (3 * 5) + 70, 4)
    change("doubled.py", "builder.add", "builder.mul")
    assert run() == (15 * 15 + 70, 5)
    change("doubled.py", "builder.mul", "builder.add")
    assert run() == (2 * 15 + 70, 5)
    (package / "helper.py").rename(package / "moved.py")  # numba imports a helper by its module
    change("entries.py", "loops.helper", "loops.moved")
    assert run() == (2 * 15 + 70, 6)


THINGS = {"a dictionary": 1}


def test_a_loop_that_names_what_has_no_content_is_refused():
    names = "a compiled loop names {'a dictionary': 1}, a <class 'dict'>"
    with pytest.raises(TypeError, match=names):
        compiled.entry()(lambda x: x + THINGS["a dictionary"])(1)


def test_arrays_of_equal_bytes_differ_by_type_and_shape():
    arrays = [np.zeros(4, np.int64), np.zeros(4, np.uint64), np.zeros((2, 2), np.int64)]
    loops = [lambda held=held: lambda: held for held in [*arrays, arrays[0].copy()]]
    digests = [compiled._digest(make()) for make in loops]
    assert len(set(digests)) == 3 and digests[0] == digests[3]


@pytest.mark.slow
def test_kept_code_is_loaded_without_what_compiling_needs(tmp_path):
    """Code that allocates needs numba's runtime; a compilation afterwards needs the rest."""
    (tmp_path / "loops.py").write_text(
        "import numpy as np\n"
        "from textmill.pipelines.runtime.compiled import entry\n"
        "@entry('int64[::1](int64)')\n"
        "def squares(n):\n"
        "    return np.arange(n) ** 2\n"
        "@entry()\n"
        "def sorted_sum(a, b):\n"
        "    return np.sort(np.append(a, b))\n"
    )
    program = (
        "import sys, loops\n"
        "print(loops.squares(4).tolist(), 'numba.core.typing.cffi_utils' in sys.modules)\n"
    )
    more = "made = loops.squares(3); print(loops.sorted_sum(made, made).tolist())\n"

    def run(program: str) -> str:
        paths = os.pathsep.join([str(tmp_path), str(ROOT)])
        done = run_python("-B", "-c", program, PYTHONPATH=paths, NUMBA_CACHE_DIR=str(tmp_path))
        assert not done.returncode, done.stderr
        return done.stdout

    assert run(program) == "[0, 1, 4, 9] True\n"  # compiled
    assert run(program) == "[0, 1, 4, 9] False\n"  # loaded
    assert run(program + more) == "[0, 1, 4, 9] False\n[0, 0, 1, 1, 4, 4]\n"
