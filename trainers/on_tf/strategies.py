"""Which devices train together: a TPU, several GPUs, one GPU, or the CPU."""

import os

from schemas.errors import UsageError
from trainers.on_tf.backend import keras, tf
from trainers.on_tf.tf_flags import TfFlags


def choose_strategy(flags: TfFlags) -> tf.distribute.Strategy:
    """The distribution strategy for the devices that are there.

    Call it before anything else runs in TensorFlow: devices cannot be split later.

    Args:
      flags: --device, --cpu_devices, --batch_size and --accumulation count.

    Returns:
      TPUStrategy, MirroredStrategy for several devices of one kind, else OneDeviceStrategy.

    Raises:
      UsageError: there is no such device, or the batch cannot be shared by as many as there are.
    """
    strategy = _strategy(flags)
    replicas, microbatches = strategy.num_replicas_in_sync, flags.accumulation or 1
    if flags.batch_size % (replicas * microbatches):
        each = f" with --accumulation={microbatches}" if microbatches > 1 else ""
        raise UsageError(
            f"--batch_size={flags.batch_size} cannot be shared by {replicas} devices{each}: give a "
            f"multiple of {replicas * microbatches}"
        )
    return strategy


def _strategy(flags: TfFlags) -> tf.distribute.Strategy:
    wanted = flags.device
    has_tpu = "TPU_NAME" in os.environ or tf.config.list_physical_devices("TPU")
    if wanted == "tpu" or (wanted == "auto" and has_tpu):
        return _tpu()
    gpus = tf.config.list_physical_devices("GPU") if wanted in ("auto", "gpu") else []
    if len(gpus) > 1:
        return tf.distribute.MirroredStrategy()
    if gpus:
        return tf.distribute.OneDeviceStrategy("/gpu:0")
    if wanted == "gpu":
        raise UsageError("--device=gpu: TensorFlow sees no GPU; install tensorflow[and-cuda]")
    if flags.cpu_devices > 1:
        return tf.distribute.MirroredStrategy(_logical_cpus(flags.cpu_devices))
    return tf.distribute.OneDeviceStrategy("/cpu:0")


def _tpu() -> tf.distribute.Strategy:
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(
            tpu=os.environ.get("TPU_NAME", "local")
        )
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except (ValueError, tf.errors.OpError) as error:
        raise UsageError(f"--device=tpu: TensorFlow reaches no TPU ({error})") from error
    return tf.distribute.TPUStrategy(resolver)


def _logical_cpus(count: int) -> list[str]:
    [cpu] = tf.config.list_physical_devices("CPU")
    parts = tf.config.get_logical_device_configuration(cpu)
    if parts is None or len(parts) < count:
        try:
            tf.config.set_logical_device_configuration(
                cpu, [tf.config.LogicalDeviceConfiguration()] * count
            )
        except RuntimeError as error:
            raise UsageError(
                f"--cpu_devices={count}: TensorFlow runs already with {len(parts or [0])}"
            ) from error
    return [f"/cpu:{number}" for number in range(count)]


def device_name(strategy: tf.distribute.Strategy) -> str:
    """For people: "OneDeviceStrategy on CPU:0", "MirroredStrategy on 2 x GPU:0"."""
    workers = strategy.extended.worker_devices
    device = workers[0].split("device:")[-1].strip("/").upper()
    count = f"{len(workers)} x " if len(workers) > 1 else ""
    return f"{type(strategy).__name__} on {count}{device}"


def set_precision(flags: TfFlags, strategy: tf.distribute.Strategy) -> str:
    """Sets Keras' policy for the layers made from now on; returns the dtype of the computation."""
    dtype = flags.precision
    if dtype == "auto":
        dtype = "float32" if "CPU" in device_name(strategy) else "bfloat16"
    keras.config.set_dtype_policy("mixed_bfloat16" if dtype == "bfloat16" else "float32")
    return dtype
