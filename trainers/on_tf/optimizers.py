"""Keras' optimizers by the names of the command line, with their schedule."""

from typing import Any

from trainers.on_tf.backend import keras, tf
from trainers.on_tf.run_config import RunConfig


@keras.saving.register_keras_serializable("textmill")
class WarmupThenLinear(keras.optimizers.schedules.LearningRateSchedule):
    """Linear up to the highest over the warm-up, then linear down; no step has a rate of 0.

    Keras has a linear decay and no linear warm-up before it. The same rates as the Flax trainers':
    of 10 steps with a warm-up of 2, 1/2, 1, 8/9, 7/9, ... 1/9 of the highest.
    """

    def __init__(self, highest: float, warmup_steps: int, steps: int):
        """Takes the highest rate, and the steps that it goes up and that there are in all."""
        super().__init__()
        self.highest, self.warmup_steps, self.steps = highest, max(1, warmup_steps), steps

    def __call__(self, step: Any) -> tf.Tensor:
        """The rate of the step that comes after `step` steps, f32."""
        number = tf.cast(step, tf.float32) + 1.0
        rise = number / self.warmup_steps
        fall = (self.steps + 1 - number) / max(1, self.steps + 1 - self.warmup_steps)
        return self.highest * tf.clip_by_value(tf.minimum(rise, fall), 0.0, 1.0)

    def get_config(self) -> dict[str, Any]:
        """As Keras wants it."""
        return {"highest": self.highest, "warmup_steps": self.warmup_steps, "steps": self.steps}


def schedule_for(config: RunConfig, steps: int) -> WarmupThenLinear:
    """The learning rate of a run of so many steps."""
    warmup = steps // 10 if config.warmup_steps is None else config.warmup_steps
    return WarmupThenLinear(config.learning_rate, warmup, steps)


def make_optimizer(
    config: RunConfig, steps: int, variables: list[keras.Variable]
) -> keras.optimizers.Optimizer:
    """Keras' optimizer, built; biases and norms (vectors) do not decay.

    Clipping is the step's, which knows the norm already. Keras' adamw adds epsilon to the root
    before it corrects the bias, as in section 2 of Kingma and Ba, "Adam", 2014: step t is PyTorch's
    with an epsilon of epsilon / sqrt(1 - beta2**t).

    Args:
      config: of the run.
      steps: of the whole schedule.
      variables: to train; under a strategy call this in its scope.
    """
    rate: Any = schedule_for(config, steps)  # Keras' hints know numbers only
    decay = config.weight_decay or None
    # Keras counts the optimizers of a process, and checkpoints know variables by their names.
    name = config.optimizer
    if name == "adamw":
        optimizer = keras.optimizers.AdamW(
            rate,
            name=name,
            weight_decay=config.weight_decay,
            beta_1=config.beta1,
            beta_2=config.beta2,
            epsilon=config.epsilon,
        )
    elif name == "adafactor":
        optimizer = keras.optimizers.Adafactor(
            rate, relative_step=False, weight_decay=decay, name=name
        )
    elif name == "lion":
        optimizer = keras.optimizers.Lion(
            rate, beta_1=config.beta1, beta_2=config.beta2, weight_decay=decay, name=name
        )
    else:
        optimizer = keras.optimizers.SGD(rate, momentum=config.beta1, weight_decay=decay, name=name)
    if optimizer.weight_decay:
        vectors = [variable for variable in variables if len(variable.shape) < 2]
        optimizer.exclude_from_weight_decay(var_list=vectors)
    optimizer.build(variables)
    return optimizer
