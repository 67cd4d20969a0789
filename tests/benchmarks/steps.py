"""Steps of trainers: what a step takes in the trainer's own loop, and the rows of the table."""

from collections.abc import Callable, Iterator
from unittest.mock import patch

from tests.benchmarks.clock import Seconds
from tests.benchmarks.measure import Record, Runs, Side, versions
from trainers.run.journal import Rate, Rates


class TrainerRounds:
    """A trainer as a contestant: each call is a run of it, and gives the seconds of a step.

    What a user runs, with reading, placing, measuring and writing. The first steps (compiling, and
    what is made once) do not count, and neither does what comes after the last.

    Attributes:
      waiting: share of that time in which the loop stood still for lack of a batch, of each run.
    """

    def __init__(self, run: Callable[[], object], *, first: int = 1):
        """Takes what runs the trainer, and the number of its first steps that do not count."""
        self.waiting: Runs[float] = Runs()
        self._run, self._first = run, first

    def __call__(self) -> Seconds:
        """Runs it once."""
        marks: list[tuple[Seconds, float]] = []

        class Marked(Rates):
            def count_step(self, tokens: float) -> Rate:
                marks.append((Seconds.now(), self._waited))
                return super().count_step(tokens)

        with patch("trainers.run.loop.Rates", Marked):
            self._run()
        (began, waited), (ended, waited_in_all) = marks[self._first - 1], marks[-1]
        whole = ended.since(began)
        self.waiting.append((waited_in_all - waited) / whole.wall)
        return ended.since(began, len(marks) - self._first)


def step_records(
    trainer: str, found: dict[str, Runs[Seconds]], rounds: TrainerRounds, *packages: str, note: str
) -> Iterator[Record]:
    """The trainer beside the plainest loop ("plain") and PyTorch ("torch"), and its waiting."""
    used = versions(*packages)

    def side(name: str, called: str) -> Side:
        return Side.rate(called, found[name], 1, "steps", workers="all cores", note=note)

    ours = side("trainer", trainer)
    for name, called, reach in (("plain", "the plainest loop", 0.97), ("torch", "PyTorch", 1.0)):
        if name in found:
            beside = side(name, called)
            yield Record(f"{trainer}, a step beside {called}", ours, beside, reach, versions=used)
    shares = Runs(share * 100 for share in rounds.waiting)
    waiting = Side.values(trainer, "%", shares, workers="all cores", note=note)
    name = f"{trainer}, time waiting for data, %"
    yield Record(name, waiting, reach=1, at_most=True, versions=used)
