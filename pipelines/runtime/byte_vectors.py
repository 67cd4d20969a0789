"""Steps of 64 bytes for compiled loops: each is one vector of LLVM.

A mask of 64 bytes is an int64 whose bit i is set if byte i has a property (Langdale and Lemire,
"Parsing Gigabytes of JSON per Second", 2019).
"""

from typing import Any

from textmill.pipelines.runtime.compiled import inner, intrinsic

AT_ONCE = 64


@inner
def in_range(data, place, first, count):
    """The mask of the 64 bytes from a place on that are among `count` bytes from `first` on."""
    return _in_range(data, place, first, count)


@inner
def copy(data, place, others, to):
    """Copies 64 bytes of uint8[n] into another one."""
    _copy(data, place, others, to)


@inner
def count_bits(mask):
    """How many bits are set."""
    return _count_bits(mask)


@inner
def first_bit(mask):
    """The number of the lowest bit that is set; 64 if there is none."""
    return _first_bit(mask)


def _vector(context: Any, builder: Any, array: Any, value: Any, place: Any) -> Any:
    """A pointer to the 64 bytes of an array from a place on."""
    # Imported here, by numba's compiler, since numba takes 0.3 s to import.
    from llvmlite import ir

    first = context.make_array(array)(context, builder, value).data
    form = ir.VectorType(ir.IntType(8), AT_ONCE).as_pointer()
    return builder.bitcast(builder.gep(first, [place]), form)


@intrinsic
def _in_range(context: Any, data: Any, place: Any, first: Any, count: Any) -> Any:
    # Imported here, by numba's compiler, since numba takes 0.3 s to import.
    from llvmlite import ir
    from numba import types

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        def all_of(byte: Any) -> Any:
            one = builder.insert_element(ir.Constant(values.type, ir.Undefined), byte, lane(0))
            return builder.shuffle_vector(one, one, ir.Constant(lanes, None))

        lane = ir.IntType(32)
        lanes = ir.VectorType(lane, AT_ONCE)
        data_type, (array, start, low, number) = signature.args[0], arguments
        values = builder.load(_vector(context, builder, data_type, array, start), align=1)
        found = builder.icmp_unsigned("<", builder.sub(values, all_of(low)), all_of(number))
        return builder.bitcast(found, ir.IntType(AT_ONCE))

    return types.int64(data, types.int64, types.uint8, types.uint8), generate


@intrinsic
def _copy(context: Any, data: Any, place: Any, others: Any, to: Any) -> Any:
    # Imported here, by numba's compiler, since numba takes 0.3 s to import.
    from numba import types

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, start, target, end = arguments
        source = _vector(context, builder, signature.args[0], array, start)
        copied = _vector(context, builder, signature.args[2], target, end)
        builder.store(builder.load(source, align=1), copied, align=1)
        return context.get_dummy_value()

    return types.void(data, types.int64, others, types.int64), generate


@intrinsic
def _count_bits(context: Any, mask: Any) -> Any:
    # Imported here, by numba's compiler, since numba takes 0.3 s to import.
    from numba import types

    return types.int64(types.int64), lambda context, builder, signature, arguments: builder.ctpop(
        arguments[0]
    )


@intrinsic
def _first_bit(context: Any, mask: Any) -> Any:
    # Imported here, by numba's compiler, since numba takes 0.3 s to import.
    from llvmlite import ir
    from numba import types

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.IntType(1)(0))

    return types.int64(types.int64), generate
