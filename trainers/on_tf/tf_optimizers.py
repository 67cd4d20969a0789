"""Keras' optimizers by the names of the command line."""

from collections import Counter
from typing import Any

from trainers.on_tf.backend import keras
from trainers.on_tf.tf_flags import TfFlags


class Momentum(keras.optimizers.SGD):
    """Gradient descent with momentum as PyTorch and optax have it.

    Decay is part of the gradient, and momentum is of gradients: each step multiplies it by its own
    learning rate. Keras' own adds up steps, each of the rate that was then, and decays beside it.
    """

    decay = 0.0  # of matrices

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Adds the decay to the gradient, the gradient to the momentum, and goes down that."""
        if len(variable.shape) > 1:
            gradient = gradient + self.decay * variable
        if self.momentum:
            velocity = self.momentums[self._get_variable_index(variable)]
            gradient = gradient + self.momentum * velocity
            self.assign(velocity, gradient)
        self.assign_sub(variable, learning_rate * gradient)


def make_optimizer(flags: TfFlags, variables: list[keras.Variable]) -> keras.optimizers.Optimizer:
    """Keras' optimizer, built; biases and norms (vectors) do not decay.

    Schedule and clipping are the step's. Keras' adamw adds epsilon to the root before it corrects
    the bias, as in section 2 of Kingma and Ba, "Adam", 2014: step t is PyTorch's with an epsilon of
    epsilon / sqrt(1 - beta2**t).

    Args:
      flags: of the run.
      variables: to train; under a strategy call this in its scope.
    """
    # Keras counts the optimizers of a process, and checkpoints know variables by their names.
    common: dict[str, Any] = {
        "learning_rate": flags.learning_rate,
        "weight_decay": flags.weight_decay or None,
        "name": flags.optimizer,
    }
    betas: dict[str, Any] = {"beta_1": flags.beta1, "beta_2": flags.beta2}
    if flags.optimizer == "adamw":
        common["weight_decay"] = flags.weight_decay
        optimizer = keras.optimizers.AdamW(**common, **betas, epsilon=flags.epsilon)
    elif flags.optimizer == "adafactor":
        optimizer = keras.optimizers.Adafactor(**common, relative_step=False)
    elif flags.optimizer == "lion":
        optimizer = keras.optimizers.Lion(**common, **betas)
    else:
        common["weight_decay"] = None
        optimizer = Momentum(**common, momentum=flags.beta1)
        optimizer.decay = flags.weight_decay
    if optimizer.weight_decay:
        vectors = [variable for variable in variables if len(variable.shape) < 2]
        optimizer.exclude_from_weight_decay(var_list=vectors)
    optimizer.build(variables)
    return optimizer


def named_state(optimizer: keras.optimizers.Optimizer) -> dict[str, keras.Variable]:
    """Its variables by their paths; where Keras gives several one path, they are numbered.

    Of adafactor's "adafactor/kernel" there are two for each matrix: "adafactor/kernel.1" and so on.
    """
    named: dict[str, keras.Variable] = {}
    seen = Counter[str]()
    for variable in optimizer.variables:
        number = seen[variable.path]
        named[f"{variable.path}.{number}" if number else variable.path] = variable
        seen[variable.path] += 1
    return named
