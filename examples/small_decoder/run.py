"""Turns a folder of text into a small GPT that writes text; prints each command before it runs.

python examples/small_decoder/run.py                  8 minutes of processor time
python examples/small_decoder/run.py --text=my_texts  the same with your own .txt files
python examples/small_decoder/run.py --quick          20 steps, to see that everything works
"""

import argparse
import sysconfig
from collections import defaultdict
from pathlib import Path
from pydoc_data import topics

from textmill.pipelines.demo import read_docstrings, run
from textmill.schemas.commands.entry import run_entry

# Model and length of the run: what decides the time.
FULL = ["--model=tiny", "--steps=2000", "--batch_size=8"]
QUICK = ["--model=tiny", "--steps=20", "--batch_size=8"]


def main(arguments: list[str]) -> None:
    """Runs the seven commands."""
    parser = argparse.ArgumentParser(prog="python examples/small_decoder/run.py")
    parser.add_argument("--text", help="folder of .txt files; default: Python's documentation")
    parser.add_argument("--work", default="small_decoder", help="directory for all results")
    parser.add_argument("--quick", action="store_true", help="a tenth of the text, 20 steps")
    parser.add_argument("--prompt", default="Return a list of", help="text for the GPT to continue")
    options = parser.parse_args(arguments)
    work = Path(options.work)
    text = options.text or write_documentation(work / "text", every=10 if options.quick else 1)
    for command in commands(text, work, options.prompt, options.quick):
        run(command)


def write_documentation(folder: Path, every: int) -> Path:
    """Writes Python's own documentation, a file for each module or topic of the manual."""
    texts = defaultdict(list)
    for name, docstring in read_docstrings(Path(sysconfig.get_path("stdlib"))):
        texts[name.rpartition(".")[0]].append(docstring)
    for name, topic in topics.topics.items():
        texts[f"manual.{name}"].append(topic)
    folder.mkdir(parents=True, exist_ok=True)
    for name in sorted(texts)[::every]:
        (folder / f"{name}.txt").write_text("\n\n".join(texts[name]), encoding="utf-8")
    return folder


def commands(text: Path | str, work: Path, prompt: str, quick: bool) -> list[list[str]]:
    """The command lines, without `python -m`."""
    corpus, tokenizer, shards, model = (
        work / name for name in ("corpus", "tokenizer", "shards", "model")
    )
    length, vocabulary = (64, 1000) if quick else (256, 4000)
    return [
        # Cleans and deduplicates. --document=file: each file is one document, not each line.
        [
            *("pipelines.build_corpus", f"--input={text}/*.txt", "--document=file"),
            *("--near_duplicates=jaccard:0.8", f"--output={corpus}"),
        ],
        [
            *("pipelines.train_tokenizer", f"--input={corpus}", f"--vocab_size={vocabulary}"),
            f"--output={tokenizer}",
        ],
        # One text in twenty is held out for validation.
        [
            *("pipelines.build_shards", "--task=clm", f"--input={corpus}"),
            *(f"--tokenizer={tokenizer}", f"--max_length={length}"),
            *("--splits=train:0.95,validation:0.05", f"--output={shards}"),
        ],
        ["pipelines.verify", str(corpus), str(shards)],
        [
            *("trainers.flax_clm", f"--shards={shards}", f"--output={work / 'run'}"),
            *(QUICK if quick else FULL),
            *("--learning_rate=3e-3", "--evaluate_every=500", "--resume", f"--export={model}"),
        ],
        ["trainers.evaluate", str(model), f"--shards={shards}"],
        [
            *("trainers.generate", str(model), prompt, "--max_new_tokens=60"),
            *("--temperature=0.7", "--top_p=0.9", "--samples=2", "--seed=1"),
        ],
    ]


if __name__ == "__main__":
    run_entry(main)
