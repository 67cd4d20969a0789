"""The precision of a computation."""

from contextlib import AbstractContextManager

import jax
import jax.numpy as jnp


def compute_dtype(precision: str) -> jnp.dtype:
    """The dtype of the computation: that of `--precision`, by default bfloat16 but on CPUs."""
    if precision != "auto":
        return jnp.dtype(precision)
    platform = jax.local_devices()[0].platform
    return jnp.dtype(jnp.float32 if platform == "cpu" else jnp.bfloat16)


def products(dtype: jnp.dtype) -> AbstractContextManager[None]:
    """Compiles products of float32 in float32: GPUs and TPUs by default round their factors."""
    return jax.default_matmul_precision("float32" if dtype == jnp.float32 else "default")
