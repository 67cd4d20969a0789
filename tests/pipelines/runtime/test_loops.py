"""All compiled loops with every index checked, which compiled code otherwise does not do."""

import ast

import pytest

from tests.tools.places import ROOT
from tests.tools.python_process import run_python

TESTS = [
    "corpus/decontamination/test_matches.py",
    "corpus/english/test_tokenizer.py",
    "corpus/near_duplicates/test_buckets.py",
    "corpus/near_duplicates/test_find_near.py::test_the_same_as_of_all_pairs_compared",
    "corpus/near_duplicates/test_resolve.py",
    "corpus/near_duplicates/test_shingles.py",
    "corpus/rules/test_quality.py",
    "encoding/test_splitter.py",
    "encoding/test_gigatoken_engine.py",
    "encoding/test_tokenizer_types.py",
    "encoding/test_normal_text.py",
    "encoding/test_word_pieces.py",
    "linear_model/test_scores.py",
    "linear_model/test_training.py",
    "readers/test_block_features.py",
    "readers/test_json_texts.py",
    "readers/test_main_text.py",
    "readers/test_page_comments.py",
    "readers/test_page_guard.py",
    "readers/test_page_model.py",
    "readers/test_page_scan.py",
    "readers/test_page_text.py",
    "rows/test_masking.py",
    "tasks/test_noise_spans.py",
    "rows/test_packing.py",
    "rows/test_ragged.py",
    "rows/test_text_bytes.py",
    "rows/test_word_hashes.py",
    "tokenizer/test_bpe.py",
    "tokenizer/test_word_counts.py",
    "writers/test_shard_files.py",
    "writers/test_token_counts.py",
]
# Without what Python does at its end, where a process that has run test_tokenizer_types.py crashes
# in a library that the test imports, with this check and without.
RUN = """
import os, sys, pytest
code = pytest.main(sys.argv[1:])
sys.stdout.flush()
os._exit(code)
"""


def _is_entry(function: ast.FunctionDef) -> bool:
    calls = [part for part in function.decorator_list if isinstance(part, ast.Call)]
    return any(isinstance(call.func, ast.Name) and call.func.id == "entry" for call in calls)


@pytest.mark.slow
def test_no_loop_leaves_its_arrays(tmp_path):
    flags = ["-q", "-x", "-m", "not slow", "-p", "no:cacheprovider"]
    flags += [f"tests/pipelines/{name}" for name in TESTS]
    # Unchecked code is cached under the same names, so this needs a directory of its own.
    done = run_python("-c", RUN, *flags, NUMBA_BOUNDSCHECK="1", NUMBA_CACHE_DIR=str(tmp_path))
    assert not done.returncode, done.stdout[-5000:]
    loops = {
        f"{path.stem}.{node.name}"
        for path in (ROOT / "pipelines").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and _is_entry(node)
    }
    ran = {path.name.partition("-")[0] for path in tmp_path.rglob("*.nbi")}
    assert len(loops) > 40 and ran >= loops, loops - ran
