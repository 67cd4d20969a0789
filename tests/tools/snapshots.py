"""What a program puts into checkpoints, on the host."""

from textmill.trainers.run.program import Program
from textmill.trainers.run.tensors import Arrays


def weights_in(program: Program) -> Arrays:
    weights, _ = program.snapshot(weights_only=True)
    return {name: tensor.fetch()() for name, tensor in weights.items()}


def state_in(program: Program) -> Arrays:
    _, state = program.snapshot()
    return {name: tensor.fetch()() for name, tensor in state.items()}
