"""The parts of a trainer, which its entry names: flags, task, program, processes."""

from __future__ import annotations

from typing import Any, Callable, Iterator, NamedTuple, Protocol

from textmill.schemas.commands.entry import import_later, require_address_space
from textmill.schemas.format.metadata import Schema
from textmill.trainers.data.batches import BatchReader
from textmill.trainers.flags.framework_flags import FlaxRunFlags
from textmill.trainers.flags.run_flags import RunFlags
from textmill.trainers.run.interruption import Interruption
from textmill.trainers.run.plan import TrainingPlan
from textmill.trainers.run.processes import Processes
from textmill.trainers.run.program import Program
from textmill.trainers.run.training_task import TrainingTask


def join_processes(flags: RunFlags) -> Processes:
    """The processes of these flags; raises like `trainers.on_flax.jax_processes.join`."""
    assert isinstance(flags, FlaxRunFlags)
    if flags.processes.num_processes is None:
        return Processes()
    # JAX: seconds that a run of one process pays later, after its checks.
    return import_later("textmill.trainers.on_flax.jax_processes:join")(flags)


class ChatModel(Protocol):
    """A model that answers messages.

    Turns are messages of the user and answers in turn; the first and the last are the user's.
    """

    def newest(self, turns: list[str]) -> list[str]:
        """The turns without the oldest, which leave no room for an answer."""
        ...

    def answer(self, turns: list[str]) -> Iterator[str]:
        """The answer as it grows: each text begins with the one before."""
        ...


class Trainer(NamedTuple):
    """The parts of a trainer."""

    flags: type[RunFlags]
    # The third is the dataset, if there is one.
    make_task: Callable[[RunFlags, Schema, BatchReader | None], TrainingTask]
    import_program: Callable[[TrainingPlan, Any], Program]  # imports the framework
    framework: str  # its name, for messages
    gigabytes: float  # address space that the framework needs at least
    packages: tuple[str, ...] = ()  # whose versions the processes of a run must share
    join: Callable[[Any], Processes] = lambda _: Processes()  # meets the other processes of a run
    # Continues a text, several times: trained model, flags of the run and of generation, text.
    continue_text: Callable[..., list[str]] | None = None
    # Opens a conversation: trained model, flags of the run and of generation.
    open_chat: Callable[..., ChatModel] | None = None

    def join_run(self, flags: RunFlags) -> Processes:
        """The processes of a run; a DataError if the address space is too small."""
        require_address_space(self.gigabytes, self.framework)
        return self.join(flags)

    def make_program(self, plan: TrainingPlan, task: TrainingTask) -> Program:
        """The program of a plan; a DataError if the address space is too small."""
        require_address_space(self.gigabytes, self.framework)
        with Interruption() as interruption:  # a signal would break the import of a library
            program = self.import_program(plan, task)
        interruption.deliver()
        return program

    def write_texts(self, *model_and_text: Any, is_message: bool) -> list[str]:
        """Like `continue_text`, where the trainer has it; raises like `make_program`."""
        assert self.continue_text is not None
        require_address_space(self.gigabytes, self.framework)
        return self.continue_text(*model_and_text, is_message=is_message)

    def chat(self, *model: Any) -> ChatModel:
        """Like `open_chat`, where the trainer has it; raises like `make_program`."""
        assert self.open_chat is not None
        require_address_space(self.gigabytes, self.framework)
        return self.open_chat(*model)
