"""Packages that libraries import if they are installed, and that a run does not need."""

import sys
import threading

import pyarrow as pa
import pytest

from tests.tools.places import ROOT
from tests.tools.python_process import run_python
from textmill.pipelines.runtime.imports import block_imports, postpone_imports


@pytest.mark.parametrize(
    "workers", [[], ["--direct_running_mode=multi_processing", "--direct_num_workers=1"]]
)
def test_no_process_of_a_run_loads_what_it_does_not_use(workers, tokenizer_path, tmp_path):
    """A data frame still imports pandas, and pyarrow takes it."""
    (tmp_path / "looking.py").write_text(
        "import sys\n\n\n"
        "def look(document=None):\n"
        "    unused = 'pandas', 'IPython', 'requests', 'boto3', 'pymongo', 'google.cloud.storage'\n"
        "    unused += 'beartype', 'cryptography.fernet', 'dill', 'fastavro', 'grpc.aio'\n"
        "    unused += 'httplib2', 'psutil', 'typeguard', 'unittest.mock'\n"
        "    assert not {*unused} & set(sys.modules), {*unused} & set(sys.modules)\n"
    )
    (tmp_path / "text.txt").write_text("a few words\n")
    code = """
import sys
from looking import look
from textmill.pipelines.build_shards import main
main(sys.argv[1:])
look()
import pyarrow
assert list(pyarrow.table({"a": [1]}).to_pandas().a) == [1]
import pandas
assert pyarrow.array(pandas.Series([1.0, None])).null_count == 1
"""
    flags = [f"--input={tmp_path}/text.txt", f"--tokenizer={tokenizer_path}"]
    flags += ["--filter=looking:look", "--task=clm", "--max_length=64", f"--output={tmp_path}/out"]
    done = run_python("-c", code, *flags, *workers, PYTHONPATH=f"{ROOT}:{tmp_path}")
    assert done.returncode == 0, done.stderr


def test_clients_of_clouds_are_there_for_another_runner():
    code = """
import sys
from textmill.pipelines.runners.launch import check_arguments
check_arguments(["--runner=DataflowRunner"])
assert {"boto3", "pymongo", "requests", "google.cloud.storage"} <= set(sys.modules)
"""
    done = run_python("-c", code)
    assert done.returncode == 0, done.stderr


def test_what_is_imported_stays():
    with block_imports("pyarrow", "chunk_of_nothing"):
        import pyarrow

        assert pyarrow is pa
        with pytest.raises(ModuleNotFoundError, match="is hidden"):
            __import__("chunk_of_nothing")
    with pytest.raises(ModuleNotFoundError, match="No module"):
        __import__("chunk_of_nothing")


def test_postponed_modules_work_when_beam_needs_them():
    """A hint that Beam does not know goes to beartype; the others are of transforms with files."""
    code = """
import json, sys
from textmill.pipelines.runners.launch import with_beam
with_beam()
loaded = lambda: {"beartype", "cryptography", "fastavro", "grpc.aio", "httplib2"} & set(sys.modules)
assert not loaded()
from apache_beam.typehints.typehints import is_consistent_with
assert not is_consistent_with(int, 3)  # beartype raises for what is no hint
assert is_consistent_with(bool, int) and not is_consistent_with(int, bool)
assert loaded() == {"beartype"}
from apache_beam.internal.http_client import get_new_http
assert type(get_new_http()).__module__ == "httplib2"
from apache_beam.transforms import util
key = b"A" * 43 + b"="
assert util.Fernet(key).decrypt(util.Fernet(key).encrypt(b"a")) == b"a"
from apache_beam.coders.avro_record import AvroRecord
from apache_beam.coders.coders import AvroGenericCoder
fields = [{"name": "b", "type": "int"}]
coder = AvroGenericCoder(json.dumps({"type": "record", "name": "a", "fields": fields}))
assert coder.decode(coder.encode(AvroRecord({"b": 3}))) == AvroRecord({"b": 3})
import grpc
assert grpc.aio.insecure_channel and isinstance(grpc.aio, type(sys))
assert loaded() == {"beartype", "cryptography", "fastavro", "grpc.aio", "httplib2"}
"""
    done = run_python("-c", code)
    assert done.returncode == 0, done.stderr


LATER = """
class Refused(Exception):
    pass


def check(number):
    if number < 0:
        raise Refused(number)
    return number


SIZE = 3
"""
IMPORTER = """
import later_whole
from later_package.inner import Refused, check


def is_good(number):
    try:
        return check(number) == number
    except Refused:
        return False
"""


@pytest.fixture()
def importer(tmp_path, monkeypatch):
    """A module that took functions and exceptions from others, which are not loaded."""
    (tmp_path / "later_package").mkdir()
    (tmp_path / "later_package" / "__init__.py").touch()
    (tmp_path / "later_package" / "inner.py").write_text(LATER)
    (tmp_path / "later_whole.py").write_text(LATER)
    (tmp_path / "importer.py").write_text(IMPORTER)
    monkeypatch.syspath_prepend(tmp_path)
    names = {"later_package.inner": ("Refused", "check"), "later_whole": (), "pyarrow": ("array",)}
    with postpone_imports(names):
        importer = __import__("importer")
        assert sys.modules["pyarrow"] is pa  # which was there before
    yield importer
    for name in ("importer", "later_package", "later_package.inner", "later_whole"):
        sys.modules.pop(name, None)


def test_what_is_postponed_is_loaded_once_it_is_used(importer):
    assert not {"later_package", "later_package.inner", "later_whole"} & set(sys.modules)
    assert importer.is_good(2) and not importer.is_good(-2)
    assert importer.check is sys.modules["later_package.inner"].check
    assert "later_whole" not in sys.modules
    assert importer.later_whole.SIZE == 3
    assert importer.later_whole is sys.modules["later_whole"]


def test_the_first_call_may_raise_what_its_caller_catches(importer):
    assert not importer.is_good(-2)


def test_nothing_is_asked_of_the_objects_of_other_modules(importer, monkeypatch):
    class Strict:
        def __getattribute__(self, name):
            raise RuntimeError(name)

    class Strictest(type(sys)):
        def __getattribute__(self, name):
            raise RuntimeError(name)

    holder = type(sys)("holder")
    holder.__dict__["strict"] = Strict()
    monkeypatch.setitem(sys.modules, "holder", holder)
    monkeypatch.setitem(sys.modules, "strict", Strict())
    monkeypatch.setitem(sys.modules, "strictest", Strictest("strictest"))
    assert importer.is_good(2) and not importer.is_good(-2)


def test_another_importer_gets_the_module_itself(importer):
    import later_whole  # pyright: ignore[reportMissingImports]

    assert later_whole.__file__ and later_whole.check(1) == 1
    assert importer.later_whole.check is later_whole.check


def test_threads_may_call_at_once(importer):
    together, good = threading.Barrier(8), []

    def work() -> None:
        together.wait()
        good.append(importer.is_good(1) and not importer.is_good(-1))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert good == [True] * 8


def test_what_cannot_be_called_is_loaded_at_once(importer, tmp_path):
    """Everything of a module, or a name that is not listed: another version may take it."""
    (tmp_path / "later_star.py").write_text("SIZE, __all__ = 4, ['SIZE']\n")
    (tmp_path / "star.py").write_text("from later_star import *\n")
    with postpone_imports({"later_star": ()}):
        assert __import__("star").SIZE == 4
    assert sys.modules["later_star"].SIZE == 4
