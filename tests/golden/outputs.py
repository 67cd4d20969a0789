"""The outputs whose bytes must stay: what each command writes from the files in `inputs`.

    python -m tests.golden.outputs        # replaces SHA256SUMS and `kept`

`SHA256SUMS` has every file of every output of the pipelines. `kept` has the few outputs that later
versions must be able to open, and a run of flax_clm with the weights that it led to: their bytes
depend on the machine, so these are compared by value. A commit that changes bytes on purpose
replaces both, raises the version of the format that changed and has a line in CHANGELOG.md.
"""

import contextlib
import shutil
import tempfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

from textmill.pipelines import build_corpus, build_shards, export, train_tokenizer
from textmill.schemas.commands.entry import run_entry
from textmill.trainers import flax_clm
from textmill.trainers.run.run_directory import read_settings, write_settings

HERE = Path(__file__).parent
SUMS, KEPT = HERE / "SHA256SUMS", HERE / "kept"
_SENTINELS = ",".join(["<s>", "<pad>", "</s>", "<unk>", "<mask>", "<extra_id_0>", "<extra_id_1>"])
_DOCUMENTS = ["--input=documents.jsonl"]
_BUILD = ["--tokenizer=bpe", "--splits=train:0.8,validation:0.2", "--max_length=32"]
_BOTH = "--file_format=array_record,tfrecord"
COMMANDS: dict[str, tuple[Callable[[list[str]], None], list[str]]] = {
    "bpe": (
        train_tokenizer.main,
        [*_DOCUMENTS, "--vocab_size=360", f"--special_tokens={_SENTINELS}"],
    ),
    "bpe_qwen2": (train_tokenizer.main, [*_DOCUMENTS, "--vocab_size=320", "--pattern=qwen2"]),
    "wordpiece": (train_tokenizer.main, [*_DOCUMENTS, "--vocab_size=260", "--model=wordpiece"]),
    "chat_bpe": (
        train_tokenizer.main,
        [
            *("--input=documents.jsonl", "--vocab_size=320", "--chat_template=chat.jinja"),
            "--special_tokens=<pad>,</s>,<|system|>,<|user|>,<|assistant|>",
        ],
    ),
    "corpus": (
        build_corpus.main,
        [
            *("--input=documents.jsonl", "--near_duplicates=jaccard:0.7", "--pii=replace"),
            *("--quality=c4", "--c4_min_sentences=1", "--keep_fields=url,label"),
        ],
    ),
    "mlm": (build_shards.main, [*_DOCUMENTS, *_BUILD, _BOTH]),
    "mlm_words": (
        build_shards.main,
        [*_DOCUMENTS, *_BUILD, "--tokenizer=wordpiece", "--mask_unit=word", "--mask_copies=2"],
    ),
    "clm": (build_shards.main, ["--task=clm", "--input=corpus", *_BUILD, "--packing=concat"]),
    "classification": (
        build_shards.main,
        ["--task=classification", *_DOCUMENTS, *_BUILD, "--encoding=int64_list", _BOTH],
    ),
    "qa": (
        build_shards.main,
        [
            *("--task=qa", "--input=questions.jsonl", *_BUILD, "--max_length=96"),
            *("--max_question_length=16", "--max_answer_length=12", "--window_stride=16"),
        ],
    ),
    "span_corruption": (
        build_shards.main,
        ["--task=span_corruption", *_DOCUMENTS, *_BUILD, "--mean_span_length=8"],
    ),
    "chat": (
        build_shards.main,
        ["--task=chat", "--input=chat.jsonl", *_BUILD, "--tokenizer=chat_bpe", "--max_length=64"],
    ),
    "tokens": (
        build_shards.main,
        ["--task=tokens", *_DOCUMENTS, *_BUILD, "--file_format=megatron,array_record,npy,llmc"],
    ),
    "parquet": (export.main, ["mlm", "--to=parquet"]),
}
"""Output -> the command that writes it, in a directory with the files of `inputs`."""
KEPT_OUTPUTS = ("bpe", "corpus", "clm")
TRAIN = [
    *("--batch_size=4", "--steps=8", "--learning_rate=0.01", "--dropout=0.1"),
    *("--checkpoint_every=4", "--keep_checkpoints=1", "--evaluate_every=4"),
    *("--layers=1", "--hidden_size=16", "--heads=2", "--intermediate_size=32"),
]
"""Flags of the run of flax_clm on the kept dataset, which stops after four steps."""


def write_outputs(directory: Path) -> None:
    """Runs all commands in a directory, which gets the inputs, too; relative paths only."""
    shutil.copytree(HERE / "inputs", directory, dirs_exist_ok=True)
    with contextlib.chdir(directory):
        for name, (main, flags) in COMMANDS.items():
            main([*_merge(flags), f"--output={name}"])


def write_run(directory: Path) -> None:
    """Trains on `clm` in a directory: `run` after 4 of 8 steps, `weights` after all."""
    with contextlib.chdir(directory):
        flags = ["--shards=clm", *TRAIN]
        flax_clm.main([*flags, "--output=run", "--stop_after=4"])
        flax_clm.main([*flags, "--output=whole", "--export=weights"])
        settings = read_settings(Path("run"))
        settings["config"]["shards"] = "clm"  # not the temporary path; --shards finds it
        write_settings(Path("run"), settings)


def _merge(flags: list[str]) -> list[str]:
    """The flags, a later one in place of an earlier one of its name."""
    return list({flag.partition("=")[0]: flag for flag in flags}.values())


def sums_of(directory: Path) -> str:
    """A line "SHA256  PATH" for each file of the outputs, sorted by path."""
    paths = sorted(
        path
        for name in COMMANDS
        for path in (directory / name).rglob("*")
        if path.is_file() and path.name != ".lock"
    )
    lines = (
        f"{sha256(path.read_bytes()).hexdigest()}  {path.relative_to(directory).as_posix()}\n"
        for path in paths
    )
    return "".join(lines)


def main(argv: list[str]) -> None:
    """Writes SHA256SUMS and `kept`."""
    with tempfile.TemporaryDirectory() as temporary:
        write_outputs(Path(temporary))
        SUMS.write_text(sums_of(Path(temporary)))
        write_run(Path(temporary))
        left_out = shutil.ignore_patterns(".lock", "loss.png")
        for name in (*KEPT_OUTPUTS, "run", "weights"):
            shutil.rmtree(KEPT / name, ignore_errors=True)
            shutil.copytree(Path(temporary) / name, KEPT / name, ignore=left_out)


if __name__ == "__main__":
    run_entry(main)
