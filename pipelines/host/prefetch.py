"""Loads of memory that a compiled loop asks for ahead of time."""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic


def _prefetch(context: Any, rows: Any, row: Any) -> Any:
    """Has the processor load the row of a two-dimensional array into its nearest cache.

    It has no effect on results. Source: `llvm.prefetch` of the LLVM language reference.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        pointer, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        step = builder.mul(arguments[1], builder.extract_value(array.strides, 0))
        place = builder.gep(builder.bitcast(array.data, pointer), [step])
        form = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
        load = cgutils.get_or_insert_function(builder.module, form, "llvm.prefetch.p0")
        builder.call(load, [place, number(0), number(3), number(1)])  # to read, keep, data
        return context.get_dummy_value()

    return types.void(rows, row), generate


prefetch: Any = intrinsic(_prefetch)
