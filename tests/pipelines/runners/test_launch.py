"""Which runner is taken, which flags are refused, and how a worker's error reads."""

import threading
import time
import traceback
from queue import Queue
from types import SimpleNamespace
from typing import Any

import apache_beam as beam
import grpc
import pytest
from apache_beam.options.pipeline_options import StandardOptions
from apache_beam.runners.worker import sdk_worker
from apache_beam.runners.worker.sdk_worker import SdkHarness

from textmill.pipelines.runners import launch, worker_watch
from textmill.pipelines.runners.beam_flags import refuse_bad_runner
from textmill.pipelines.runners.beam_patches import patch_beam
from textmill.pipelines.runners.failures import explain_failure
from textmill.pipelines.runners.launch import (
    IN_PROCESS,
    PROCESSES_PAY_BYTES,
    THREADS_PAY_BYTES,
    check_arguments,
    check_runner,
    choose_runner,
)
from textmill.pipelines.runners.runner_flags import RUNNERS, runner_flags
from textmill.pipelines.shards.options import BuildOptions
from textmill.pipelines.tasks.mlm import Mlm
from textmill.schemas.commands.options import fields_of
from textmill.schemas.errors import DataError, FieldDataError, TextmillError, UsageError, flag


@pytest.mark.parametrize(
    "size, cores, forks, words, mode",
    [
        (PROCESSES_PAY_BYTES, 1, True, "in this process", None),
        (THREADS_PAY_BYTES - 1, 4, True, "in this process", None),
        (THREADS_PAY_BYTES, 4, True, "in 4 threads", "multi_threading"),
        (PROCESSES_PAY_BYTES, 4, False, "in 4 threads", "multi_threading"),
        (PROCESSES_PAY_BYTES, 2, True, "in 2 worker processes", "multi_processing"),
        (PROCESSES_PAY_BYTES - 1, 5, True, "in 5 threads", "multi_threading"),
        (PROCESSES_PAY_BYTES, 5, False, "in 5 worker processes", "multi_processing"),
    ],
)
def test_input_cores_and_forks_decide(size, cores, forks, words, mode, monkeypatch):
    monkeypatch.setattr(launch, "can_fork", lambda: forks)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(cores)), raising=False)
    arguments, how = choose_runner([], size)
    assert arguments[0] == f"--runner={IN_PROCESS}" and how.startswith(words)
    modes = [a for a in arguments if a.startswith("--direct_running_mode")]
    assert modes == ([f"--direct_running_mode={mode}"] if mode else [])
    assert runner_flags(arguments).is_local


def test_what_the_user_says_stands():
    for asked in (["--runner=FlinkRunner"], ["--runner", "FlinkRunner"]):
        assert choose_runner(asked, 10**12) == (asked, "on FlinkRunner")
        assert not runner_flags(asked).is_local
    arguments, _ = choose_runner(["--direct_num_workers=3"], 10**12)
    assert arguments == [f"--runner={IN_PROCESS}", "--direct_num_workers=3"]


def test_flags_of_beam_pass_and_others_are_refused_with_a_hint():
    check_arguments(["--runner=X", "--direct_num_workers=2", "--temp_location=x"])
    with pytest.raises(UsageError, match=r"--mask_rat=1: .*did you mean --mask_rate\?"):
        check_arguments(["--mask_rat=1"], fields_of(BuildOptions, Mlm))
    with pytest.raises(UsageError, match="stray belongs to no flag: .* quotes"):
        check_arguments(["stray"], fields_of(BuildOptions))


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--runner=os.system"], "--runner=os.system: there is no such runner; omit"),
        (["--runner", "os.abort"], "--runner=os.abort: there is no such runner; omit"),
        (["--runner=no.such"], r"--runner=no.such: there is no such runner \(ModuleNotFound"),
        (["--runner="], "--runner=: there is no such runner"),
        (["--runner=.x"], "--runner=.x: there is no such runner"),
        (["--runner=apache_beam.runners.PipelineRunner"], "there is no such runner; omit"),
        (
            ["--runner=portable"],
            "portable needs a job server: start it, and set --job_endp",
        ),
        (["--runner=prism"], "prism needs a running Prism: start it with `prism --job_port=8073`"),
        (["--runner=SparkRunner"], "SparkRunner needs a job server: start it, and set --job_end"),
        (["--runner=flink"], "flink needs a job server: start it, and set --job_endpoint=HOST:P"),
        (["--runner=flink", "--flink_job_server_jar=a.jar"], "flink needs a job server: start it"),
        (["--runner=KafkaStreamsRunner"], "KafkaStreamsRunner needs a job server: start it"),
        (["--direct_num_workers=0"], "--direct_num_workers=0: must be from 1 to 1024"),
        (["--direct_num_workers", "-1"], "--direct_num_workers=-1: must be from 1 to 1024"),
        (["--direct_num_workers=1000000"], "--direct_num_workers=1000000: must be from 1 to 1024"),
    ],
    ids=" ".join,
)
def test_runners_and_workers_that_cannot_be_are_refused_in_words(flags, said):
    with pytest.raises(UsageError, match=said):
        refuse_bad_runner(flags)


@pytest.mark.parametrize(
    ("arguments", "name", "is_local"),
    [
        ("", "", True),
        ("--runner=DataflowRunner", "DataflowRunner", False),
        ("--runner=dataflow", "DataflowRunner", False),
        ("--runner FLINKRUNNER --job_endpoint=host:8099", "FlinkRunner", False),
        ("--runner=portable --job_endpoint=embed", "PortableRunner", False),
        ("--runner prism --job_endpoint=localhost:8073", "PrismRunner", True),
        ("--runner=DirectRunner --direct_num_workers=2", "DirectRunner", True),
        ("--runner=testdirectrunner", "TestDirectRunner", False),
        ("--runner switchingdirect", "SwitchingDirectRunner", True),
        (f"--runner={IN_PROCESS}", "FnApiRunner", True),
    ],
)
def test_runners_are_known_by_all_names_that_beam_accepts(arguments, name, is_local):
    flags = runner_flags(arguments.split())
    assert (flags.runner_class, flags.is_local) == (name, is_local)
    assert flags.is_prism == (name == "PrismRunner")
    check_arguments(arguments.split())
    check_runner(arguments.split())
    known = {path.rpartition(".")[2] for path in StandardOptions.ALL_KNOWN_RUNNERS}
    assert set(RUNNERS) == known


@pytest.mark.parametrize("in_process", [True, False])
@pytest.mark.parametrize(
    "error",
    [
        DataError(f"a is cut: raise {flag('most', 3)}"),
        UsageError(f"a is cut: raise {flag('most', 3)}"),
        FieldDataError("a", "b", f"raise {flag('most', 3)}"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_flags_of_a_workers_error_are_spelled_where_the_command_runs(error, in_process):
    """Beam raises it again with the name of a step, and sends the text of its traceback."""
    tag = " [while running 'Read']"
    again = type(error)(error.args[0] + tag, *error.args[1:])
    again._tagged_with_step = True
    if not in_process:
        try:
            raise again
        except TextmillError:
            again = RuntimeError(traceback.format_exc())
    explained = explain_failure(again)
    assert isinstance(explained, TextmillError) and str(explained) == str(error)
    assert explained.in_python() == error.in_python() and "--" not in error.in_python()


def test_beam_tags_the_errors_that_it_raises_again():
    """Else `str` of a worker's error would have lost the marks of its flags."""
    with pytest.raises(DataError) as raised, beam.Pipeline(runner=IN_PROCESS) as pipeline:
        _ = pipeline | beam.Create([1]) | beam.Map(refuse)
    explained = explain_failure(raised.value)
    assert isinstance(explained, DataError) and explained.in_python() == "give most=3"


def refuse(number: int) -> None:
    raise DataError(f"give {flag('most', 3 * number)}")


def test_a_workers_error_is_its_own_paragraph():
    wrapped = RuntimeError(
        "Traceback (most recent call last):\n  File ...\n"
        "textmill.schemas.errors.DataError: a.gz is cut: get it again [while running 'Route']\nmore"
    )
    assert str(explain_failure(wrapped)) == "a.gz is cut: get it again"
    same_process = DataError("a.gz is cut [while running 'Route-ptransform-1']")
    assert str(explain_failure(same_process)) == "a.gz is cut"
    of_field = FieldDataError("input [while running 'Read']", "a.gz", "it is cut")
    assert str(explain_failure(of_field)) == "--input=a.gz: it is cut"
    assert "a worker process died" in str(
        explain_failure(RuntimeError("Channel closed prematurely."))
    )
    starved = "Traceback ...\nnumpy._core._exceptions._ArrayMemoryError: Unable to allocate 8 GiB\n"
    assert "memory is short" in str(explain_failure(RuntimeError(starved)))
    assert "_ArrayMemoryError: Unable to allocate 8 GiB" in str(
        explain_failure(RuntimeError(starved))
    )
    cut = explain_failure(grpc.RpcError("UNAVAILABLE"), "host:8099")
    assert str(cut).startswith("the job server at host:8099 ended during the job")
    defect = ZeroDivisionError("x")
    assert explain_failure(defect) is defect


def test_what_a_bundle_fails_with_is_handed_on_and_not_printed(capsys, monkeypatch):
    """A thread that is a worker may end after the run: its traceback would follow our paragraph."""
    patch_beam()
    responses: Any = Queue()
    harness: Any = SimpleNamespace(_responses=responses)
    request: Any = SimpleNamespace(instruction_id="a-bundle")
    bundle: Any = lambda: 1 // 0  # noqa: E731
    SdkHarness._execute(harness, bundle, request)
    assert "ZeroDivisionError" in responses.get().error
    assert capsys.readouterr().err == ""
    # Else Beam has changed, and patch_beam need not silence it any more.
    monkeypatch.delattr(sdk_worker, "print")
    SdkHarness._execute(harness, bundle, request)
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_a_worker_that_dies_after_publishing_is_no_failure(monkeypatch):
    """On a crowded machine the others take longer to end than a run waits that lost a worker."""
    monkeypatch.setattr(worker_watch, "_LAST_WORDS_SECONDS", 0.01)
    died = threading.Event()
    died.set()
    display: Any = SimpleNamespace(update=lambda: None, close=lambda: None)
    ending = threading.Thread(target=time.sleep, args=(0.3,))
    worker_watch.watch(ending, display, died, lambda: True)
    assert not ending.is_alive()
