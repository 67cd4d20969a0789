"""Packages that libraries import if they are installed, and that a run does not need."""

import pyarrow as pa
import pytest

from pipelines.host.imports import leave_out
from tests.tools.places import ROOT
from tests.tools.python_process import run_python

_RUN = """
import sys
from pipelines.host.imports import leave_out_pandas
leave_out_pandas()
from pipelines.runners.launch import check_arguments
check_arguments(sys.argv[1:])
import pyarrow
print(sorted({name.partition(".")[0] for name in sys.modules} & {
    "pandas", "boto3", "pymongo", "requests"}), "google.cloud.storage" in sys.modules)
import pandas
frame = pyarrow.table({"a": [1]}).to_pandas()
print(list(frame.a), pyarrow.array(pandas.Series([1.0, None])).null_count)
"""


@pytest.mark.parametrize(
    ("flag", "imported"),
    [
        ("--direct_num_workers=2", "[] False"),
        ("--runner=DataflowRunner", "['boto3', 'pandas', 'pymongo', 'requests'] True"),
    ],
)
def test_a_run_on_this_machine_loads_no_clouds_and_no_pandas(flag, imported):
    """A data frame still imports pandas, and pyarrow takes it."""
    done = run_python("-c", _RUN, flag)
    assert done.stdout.splitlines() == [imported, "[1] 1"], done.stderr


@pytest.mark.parametrize(
    "workers", [[], ["--direct_running_mode=multi_processing", "--direct_num_workers=1"]]
)
def test_no_process_of_a_run_loads_what_it_does_not_use(workers, tokenizer_path, tmp_path):
    (tmp_path / "looking.py").write_text(
        "import sys\n\n\n"
        "def look(document=None):\n"
        "    assert not {'pandas', 'IPython', 'requests', 'boto3'} & set(sys.modules)\n"
    )
    (tmp_path / "text.txt").write_text("a few words\n")
    code = """
import sys
from looking import look
from pipelines.build_shards import main
main(sys.argv[1:])
look()
"""
    flags = [
        f"--input={tmp_path}/text.txt",
        f"--tokenizer={tokenizer_path}",
        "--filter=looking:look",
    ]
    flags += ["--task=clm", "--max_length=64", f"--output={tmp_path}/out", *workers]
    done = run_python("-c", code, *flags, PYTHONPATH=f"{ROOT}:{tmp_path}")
    assert done.returncode == 0, done.stderr


def test_what_is_imported_stays():
    with leave_out("pyarrow", "chunk_of_nothing"):
        import pyarrow

        assert pyarrow is pa
        with pytest.raises(ModuleNotFoundError, match="is hidden"):
            __import__("chunk_of_nothing")
    with pytest.raises(ModuleNotFoundError, match="No module"):
        __import__("chunk_of_nothing")
