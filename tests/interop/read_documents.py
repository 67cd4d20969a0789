"""Opens a set of whole documents with the readers that it is for, and compares every token.

    python -m venv VENV
    VENV/bin/pip install torch megatron-core ai2-olmo-core grain array-record tokenizers zstandard
    python -m pipelines.build_shards --task=tokens --file_format=megatron,npy,llmc,array_record \
        --input=train.jsonl.zst --tokenizer=gpt2 --output=documents --splits=train:1
    VENV/bin/python tests/interop/read_documents.py documents train.jsonl.zst

The documents due are those of the input, each once, as `tokenizers` encodes them, with eos. Readers
that tell documents are held to them; of others the stream must be that of Megatron's.
"""

import glob
import importlib.metadata
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import zstandard
from tokenizers import Tokenizer

LENGTH = 1024  # of OLMo-core's instances


def documents_due(directory: Path, inputs: list[str]) -> list[bytes]:
    """The ids of each distinct text of the inputs, with eos, sorted."""
    schema = json.loads((directory / "schema.json").read_text())
    tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
    texts: set[str] = set()
    for path in inputs:
        with zstandard.open(path, "rt", encoding="utf-8", newline="\n") as lines:
            texts.update(json.loads(line)["text"] for line in lines)
    encoded = tokenizer.encode_batch_fast(sorted(texts), add_special_tokens=False)
    eos = schema["special_ids"]["eos"]
    return sorted(np.array([*each.ids, eos], np.int64).tobytes() for each in encoded)


def as_bytes(documents) -> list[bytes]:
    """Documents, sorted, in a form that can be compared whatever the type of their ids is."""
    return sorted(np.asarray(ids).astype(np.int64).tobytes() for ids in documents)


def of_megatron(directory: Path) -> list[np.ndarray]:
    """Every document, shard after shard."""
    from megatron.core.datasets.indexed_dataset import (  # pyright: ignore[reportMissingImports]
        IndexedDataset,
    )

    found = []
    for path in sorted(glob.glob(str(directory / "train-*.megatron.bin"))):
        dataset = IndexedDataset(path.removesuffix(".bin"))
        assert dataset.document_indices.tolist() == list(range(len(dataset) + 1))
        found += [np.array(dataset[i]) for i in range(len(dataset))]
    return found


def of_numpy(directory: Path) -> np.ndarray:
    """The stream of the npy files, mapped as nanoGPT does."""
    paths = sorted(glob.glob(str(directory / "train-*.ids.bin")))
    return np.concatenate([np.memmap(path, np.uint16, "r") for path in paths])


def of_llmc(directory: Path) -> np.ndarray:
    """The stream of llm.c's files, whose heads must say how long they are."""
    parts = []
    for path in sorted(glob.glob(str(directory / "train-*.llmc.bin"))):
        head = np.fromfile(path, np.int32, 256)
        ids = np.fromfile(path, np.uint16, offset=1024)
        assert head[:3].tolist() == [20240520, 1, len(ids)]
        parts.append(ids)
    return np.concatenate(parts)


def of_grain(directory: Path) -> np.ndarray:
    """The stream of the records, each an Example of tokens."""
    import grain.python as grain

    paths = sorted(glob.glob(str(directory / "train-*.array_record")))
    source = grain.ArrayRecordDataSource(paths)
    count = len(source)  # pyright: ignore[reportArgumentType]
    return np.concatenate([tokens_of_example(source[i]) for i in range(count)])


def tokens_of_example(record: bytes) -> np.ndarray:
    """The one feature of a tf.train.Example, read by protobuf's own parser."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    if not _EXAMPLE:
        file = descriptor_pb2.FileDescriptorProto(name="example.proto", syntax="proto3")
        fields = {  # of message -> name, number, type, of message, whether repeated
            "Int64List": [("value", 1, 3, "", True)],
            "Feature": [("int64_list", 3, 11, "Int64List", False)],
            "Entry": [("key", 1, 9, "", False), ("value", 2, 11, "Feature", False)],
            "Features": [("feature", 1, 11, "Entry", True)],
            "Example": [("features", 1, 11, "Features", False)],
        }
        for message, members in fields.items():
            described = file.message_type.add(name=message)
            for name, number, kind, inner, repeated in members:
                field = described.field.add(name=name, number=number, type=kind)
                field.label = field.LABEL_REPEATED if repeated else field.LABEL_OPTIONAL
                if inner:
                    field.type_name = f".{inner}"
        pool = descriptor_pool.DescriptorPool()
        pool.Add(file)
        found = pool.FindMessageTypeByName("Example")
        _EXAMPLE.append(message_factory.GetMessageClass(found))
    [entry] = _EXAMPLE[0].FromString(record).features.feature
    assert entry.key == "tokens"
    return np.array(entry.value.int64_list.value)


_EXAMPLE: list = []


def of_olmo_core(directory: Path, vocab_size: int, eos: int) -> tuple[np.ndarray, np.ndarray]:
    """The instances of NumpyFSLDataset end to end, and what of the npy files is due in them."""
    from olmo_core.data import (  # pyright: ignore[reportMissingImports]
        NumpyDatasetDType,
        NumpyFSLDatasetConfig,
        TokenizerConfig,
    )

    paths = sorted(glob.glob(str(directory / "train-*.ids.bin")))
    with tempfile.TemporaryDirectory() as work:
        dataset = NumpyFSLDatasetConfig(
            tokenizer=TokenizerConfig(vocab_size=vocab_size, eos_token_id=eos, pad_token_id=eos),
            paths=paths,
            sequence_length=LENGTH,
            dtype=NumpyDatasetDType.uint16,
            work_dir=work,
        ).build()
        dataset.prepare()
        found = np.concatenate([dataset[i]["input_ids"].numpy() for i in range(len(dataset))])
    parts = [np.fromfile(path, np.uint16) for path in paths]
    return found, np.concatenate([part[: len(part) // LENGTH * LENGTH] for part in parts])


def report(reader: str, package: str, equal: bool, what: str) -> None:
    """Prints a line of the table; ends with 1 where something differs."""
    version = importlib.metadata.version(package)
    print(f"| {reader} | {package} {version} | {what} | {'equal' if equal else 'NOT EQUAL'} |")
    if not equal:
        raise SystemExit(1)


def main(directory: Path, inputs: list[str]) -> None:
    """Compares all formats; prints a table."""
    schema = json.loads((directory / "schema.json").read_text())
    due = documents_due(directory, inputs)
    documents = of_megatron(directory)
    stream = np.concatenate(documents)
    size = f"{len(documents):,} documents, {len(stream):,} tokens"
    report("IndexedDataset", "megatron-core", as_bytes(documents) == due, size)
    for reader, package, found in (
        ("numpy.memmap", "numpy", of_numpy(directory)),
        ("numpy.fromfile, llm.c", "numpy", of_llmc(directory)),
        ("ArrayRecordDataSource", "grain", of_grain(directory)),
    ):
        report(reader, package, np.array_equal(found, stream), f"{len(found):,} tokens")
    eos = schema["special_ids"]["eos"]
    found, whole = of_olmo_core(directory, schema["vocab_size"], eos)
    what = f"{len(found):,} tokens in {len(found) // LENGTH:,} instances"
    report("NumpyFSLDataset", "ai2-olmo-core", np.array_equal(found, whole), what)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
