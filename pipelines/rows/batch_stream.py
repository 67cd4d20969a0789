"""Record batches as bytes: streams of Arrow's IPC format. Pure."""

import pyarrow as pa


def to_stream(batch: pa.RecordBatch) -> bytes:
    """The Arrow IPC stream of a batch."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def from_stream(stream: bytes) -> pa.RecordBatch:
    """The batch of a stream, without a copy."""
    return pa.ipc.open_stream(pa.py_buffer(stream)).read_next_batch()
