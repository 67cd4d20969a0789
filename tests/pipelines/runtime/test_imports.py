"""Packages that libraries import if they are installed, and that a run does not need."""

import pyarrow as pa
import pytest

from tests.tools.places import ROOT
from tests.tools.python_process import run_python
from textmill.pipelines.runtime.imports import block_imports


@pytest.mark.parametrize(
    "workers", [[], ["--direct_running_mode=multi_processing", "--direct_num_workers=1"]]
)
def test_no_process_of_a_run_loads_what_it_does_not_use(workers, tokenizer_path, tmp_path):
    """A data frame still imports pandas, and pyarrow takes it."""
    (tmp_path / "looking.py").write_text(
        "import sys\n\n\n"
        "def look(document=None):\n"
        "    unused = 'pandas', 'IPython', 'requests', 'boto3', 'pymongo', 'google.cloud.storage'\n"
        "    assert not {*unused} & set(sys.modules)\n"
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
