"""A worker that is free takes the next elements: no other waits for slow ones."""

import threading
from types import SimpleNamespace
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions
from apache_beam.runners.portability.fn_api_runner import execution
from apache_beam.transforms import core, userstate

from textmill.pipelines.runners import beam_patches
from textmill.pipelines.runners.beam_run import run_pipeline
from textmill.pipelines.runners.launch import IN_PROCESS

ELEMENTS, SLOW = 64, 5
INSPECT = core.get_function_args_defaults
ORIGINAL = getattr(INSPECT, "__wrapped__", INSPECT)  # of Beam, if a run was before
OTHERS = 3 * ELEMENTS // 4  # that must be done before the slow one goes on
_done = threading.Semaphore(0)
_waited: list[bool] = []
_seen: list[int] = []
_bundles: list[int] = []


class Handle(beam.DoFn):
    """Notes elements and bundles; the slow element waits for most of the others, not for ever."""

    def start_bundle(self):
        """Counts a bundle."""
        _bundles.append(1)

    def process(self, element: int):
        """Notes an element."""
        _seen.append(element)
        if element == SLOW:
            _waited.append(all(_done.acquire(timeout=3) for _ in range(OTHERS - 1)))
        _done.release()


def run(tmp_path) -> None:
    """Elements that are shuffled, as blocks are, on two workers that are threads."""
    run_pipeline(
        lambda p: p | beam.Create(range(ELEMENTS)) | beam.Reshuffle() | beam.ParDo(Handle()),
        [
            f"--runner={IN_PROCESS}",
            "--direct_running_mode=multi_threading",
            "--direct_num_workers=2",
        ],
        local=str(tmp_path),
        total_bytes=0,
        label="test",
    )


@pytest.fixture(autouse=True)
def _forget():
    _seen.clear()
    _waited.clear()
    _bundles.clear()
    while _done.acquire(blocking=False):
        pass


def test_a_free_worker_takes_more_than_its_half(tmp_path):
    run(tmp_path)
    assert sorted(_seen) == list(range(ELEMENTS))
    assert _waited == [True]
    assert len(_bundles) > 2


@pytest.mark.slow
def test_beam_itself_gives_each_worker_a_half(tmp_path, monkeypatch):
    """Else Beam has changed, and patch_beam need not replace its bundles any more."""
    monkeypatch.setattr(beam_patches, "_EvenBundles", beam_patches._EvenBundles.__base__)
    run(tmp_path)
    assert len(_bundles) == 2


class Grouped(execution.GroupingBuffer):
    """A byte for each of 100 keys, dealt out as Beam does."""

    def __init__(self):
        pass

    def partition(self, n: int) -> list[list[bytes]]:
        return [[bytes(range(100))[k::n]] for k in range(n)]


def test_bundles_become_smaller_and_hold_every_element_once():
    parts = beam_patches._Parts({"all": Grouped()}, 2)
    bundles = []
    while (part := parts.take()) is not None:
        bundles.append(b"".join(part["all"]))
    assert sorted(b"".join(bundles)) == list(range(100))
    assert [*map(len, bundles)] == [32, 24, 17, 7, 5, 4, 3, 2, 2, 1, 1, 1, 1]


def test_a_stage_without_elements_runs_once():
    buffer: Any = SimpleNamespace(partition=lambda n: [[] for _ in range(n)])
    parts = beam_patches._Parts({"none": buffer}, 2)
    assert (parts.take(), parts.take()) == ({"none": []}, None)


@pytest.mark.parametrize(
    ("kind", "is_once"),
    [
        (beam_patches.RunOptions, True),
        # Else Beam keeps views itself, and RunOptions can go.
        (PipelineOptions, False),
    ],
)
def test_options_make_a_view_once(kind, is_once):
    options = kind(["--runner=FnApiRunner", "--streaming"])
    view = options.view_as(StandardOptions)
    assert (view is options.view_as(StandardOptions)) == is_once
    assert (view.runner, view.streaming) == ("FnApiRunner", True)
    view.streaming = False  # all views share their values
    assert options.view_as(StandardOptions).streaming is False


class Counts(beam.DoFn):
    """Has state, a default, and a callback; `process` is another function of each instance."""

    STATE = userstate.CombiningValueStateSpec("number", combine_fn=sum)
    TIMER = userstate.TimerSpec("end", beam.TimeDomain.WATERMARK)

    def process(
        self,
        element: tuple[str, int],
        more: int = 3,
        number=beam.DoFn.StateParam(STATE),  # noqa: B008
        timer=beam.DoFn.TimerParam(TIMER),  # noqa: B008
    ):
        """Yields nothing."""
        del element, more, number, timer
        return ()

    @userstate.on_timer(TIMER)
    def end(self):
        """Is called back."""


@pytest.mark.parametrize(
    "step",
    [Counts(), Handle(), *(beam.Map(f).fn for f in (len, lambda a, b=2: a + b, str.upper))],
)
def test_a_method_is_inspected_once_and_as_beam_does(step, monkeypatch):
    """The signatures of a DoFn's methods, of its class, and of a function that it wraps."""
    names = [n for n in dir(step) if callable(getattr(step, n)) and not n.startswith("__")]
    found = [core.get_function_arguments(step, name) for name in [*names, "process"]]
    specs = userstate.get_dofn_specs(step)
    inspected = []

    def inspect(function: Any) -> Any:
        inspected.append(function)
        return ORIGINAL(function)

    monkeypatch.setattr(core, "get_function_args_defaults", beam_patches._inspect_once(inspect))
    for _ in range(2):
        assert [core.get_function_arguments(step, name) for name in [*names, "process"]] == found
        assert userstate.get_dofn_specs(step) == specs
    methods = [getattr(function, "__func__", None) for function in inspected]
    assert 5 < len(inspected) and all(methods.count(one) == 1 for one in methods if one)


def test_a_list_of_arguments_belongs_to_its_caller(monkeypatch):
    inspect = beam_patches._inspect_once(ORIGINAL)
    names, defaults = inspect(Counts().process)
    assert (names[:2], defaults[0]) == (["element", "more"], 3)
    names.clear()
    assert inspect(Counts().process)[0][0] == "element"
