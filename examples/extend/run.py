"""Adds a filter rule, an input format and a task to a copy of Textmill, and uses all three.

python examples/extend/run.py --work=extended

It copies the packages to `extended/checkout`, adds the three files of this folder, inserts five
lines and prints those as a diff. Then it builds a dataset from a mail archive there, and trains on
it for five steps. To keep an extension, make the same changes in your own checkout.
"""

import argparse
import difflib
import mailbox
import shutil
import subprocess
import sys
from pathlib import Path
from pydoc_data import topics

HERE, ROOT = Path(__file__).parent, Path(__file__).parents[2]
FILES = {
    "capitals.py": "pipelines/corpus/rules",
    "mbox.py": "pipelines/readers/formats",
    "fill_in_middle.py": "pipelines/tasks",
}
# (file, text that occurs once in it, text to insert after it)
LINES = (
    (
        "pipelines/corpus/filters.py",
        "from textmill.pipelines.corpus.rules.c4 import C4\n",
        "from textmill.pipelines.corpus.rules.capitals import Capitals\n",
    ),
    (
        "pipelines/corpus/filters.py",
        "    sizes: Row[Sizes] = Sizes()\n",
        "    capitals: Row[Capitals] = Capitals()\n",
    ),
    (
        "pipelines/readers/formats/table.py",
        "    for row in (\n",
        '        Format("mbox", "mbox", (".mbox",), "nowhere"),\n',
    ),
    # The rows have the features of clm, so flax_clm trains on them.
    ("schemas/format/features.py", "_TASKS = {\n", '    "fill_in_middle": _clm,\n'),
    ("schemas/format/features.py", "ROWS_OF = {", '"fill_in_middle": "clm", '),
)


def main() -> None:
    """Copies, extends, and runs six commands in the copy."""
    parser = argparse.ArgumentParser(prog="python examples/extend/run.py")
    parser.add_argument("--work", default="extended", help="directory for all results")
    work = Path(parser.parse_args().work).absolute()
    checkout = work / "checkout"
    extend(checkout)
    write_mails(work / "mails.mbox")
    special_tokens = "<s>,<pad>,</s>,<unk>,<pre>,<suf>,<mid>"
    run = "--model=tiny --steps=5 --batch_size=8"
    for command in (
        # The format reads mails.mbox, the rule drops what is written in capitals.
        f"pipelines.build_corpus --input={work}/mails.mbox --max_capitals=0.5 "
        f"--keep_fields=subject --output={work}/corpus",
        f"pipelines.train_tokenizer --input={work}/corpus --vocab_size=1000 "
        f"--special_tokens={special_tokens} --output={work}/tokenizer",
        # The task makes the rows.
        f"pipelines.build_shards --task=fill_in_middle --gap=0.5 --input={work}/corpus "
        f"--tokenizer={work}/tokenizer --output={work}/shards",
        f"pipelines.verify {work}/corpus {work}/shards",
        f"pipelines.inspect_shards {work}/shards --row=0",
        f"trainers.flax_clm --shards={work}/shards --output={work}/run {run}",
    ):
        print(f"\n$ python -m {command}", flush=True)
        subprocess.run([sys.executable, "-m", *command.split()], cwd=checkout, check=True)


def extend(checkout: Path) -> None:
    """Copies the packages, adds the files and the lines, and prints the lines."""
    packages = ("pipelines", "schemas", "trainers")
    for package in packages:
        shutil.copytree(ROOT / package, checkout / package, dirs_exist_ok=True)
    # textmill/ has links to the others.
    links = shutil.ignore_patterns(*packages)
    shutil.copytree(ROOT / "textmill", checkout / "textmill", ignore=links, dirs_exist_ok=True)
    for link in (checkout / "textmill" / package for package in packages):
        if not link.exists():
            link.symlink_to(Path("..", link.name))
    for name, folder in FILES.items():
        shutil.copy(HERE / name, checkout / folder)
    for name, before, new in LINES:
        path = checkout / name
        old = path.read_text(encoding="utf-8")
        if old.count(before) != 1:
            sys.exit(f"error: {name} does not hold {before.strip()!r} once: adapt LINES")
        text = old.replace(before, before + new)
        path.write_text(text, encoding="utf-8")
        shown = difflib.unified_diff(old.splitlines(), text.splitlines(), name, name, "", "", 1, "")
        print("\n".join(shown))


def write_mails(path: Path) -> None:
    """Writes a mail for each topic of Python's manual, and three in capitals."""
    path.unlink(missing_ok=True)
    archive = mailbox.mbox(path)
    for number, (name, text) in enumerate(sorted(topics.topics.items())):
        message = mailbox.mboxMessage()
        message["Subject"] = name
        message.set_payload(text.upper() if number < 3 else text, "utf-8")
        archive.add(message)
    archive.close()


if __name__ == "__main__":
    main()
