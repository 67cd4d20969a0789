"""Pages of the site (`make docs`) that are not files of docs/: README, its neighbours, and the API.

mkdocs calls `on_config`, `on_files` and `on_page_markdown`. The API pages hold one line per public
name; mkdocstrings replaces it with the docstring.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
BESIDE_DOCS = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")  # README.md is index.md
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")
API = {
    "Functions and results": [
        "textmill.functions.build_corpus",
        "textmill.functions.train_tokenizer",
        "textmill.functions.build_shards",
        "textmill.functions.train",
        "textmill.functions.verify",
        "textmill.results.open_directory",
        "textmill.results.Output",
        "textmill.results.Corpus",
        "textmill.results.Tokenizer",
        "textmill.results.Dataset",
        "textmill.results.Run",
    ],
    "Read datasets": [
        "textmill.trainers.data.shard_set.ShardSet",
        "textmill.trainers.data.mixture.Mixture",
        "textmill.trainers.data.shards_value.open_shards",
        "textmill.trainers.data.batches.BatchReader",
        "textmill.trainers.data.batches.SplitRows",
        "textmill.trainers.on_torch.row_stream.RowStream",
    ],
    "Column layouts and attention masks": [
        "textmill.schemas.format.layouts.huggingface",
        "textmill.schemas.format.layouts.maxtext",
        "textmill.trainers.data.adapters.attention_mask",
        "textmill.trainers.data.adapters.variable_length",
        "textmill.trainers.data.adapters.VariableLength",
        "textmill.trainers.data.adapters.one_segment_per_row",
    ],
    "Verify attention": [
        "textmill.trainers.metrics.attention.pick_rows",
        "textmill.trainers.metrics.attention.verify_attention",
        "textmill.trainers.metrics.attention.AttentionReport",
        "textmill.trainers.metrics.attention.Movement",
    ],
    "Schema and records": [
        "textmill.schemas.format.metadata.Schema",
        "textmill.schemas.files.finished.DatasetInfo",
        "textmill.schemas.files.finished.read_dataset",
        "textmill.schemas.format.codec.RowCodec",
        "textmill.schemas.format.features.Feature",
        "textmill.schemas.format.features.task_features",
    ],
    "Extension points": [
        "textmill.pipelines.tasks.task.Task",
        "textmill.pipelines.tasks.task.TextTask",
        "textmill.pipelines.tasks.task.Examples",
        "textmill.pipelines.tasks.task.Segments",
        "textmill.pipelines.corpus.rules.rule.RuleGroup",
        "textmill.pipelines.corpus.rules.rule.Rule",
        "textmill.pipelines.corpus.rules.rule.RuleResult",
    ],
}


def on_config(config: Any) -> Any:
    """Gives pages a link to edit them, if `TEXTMILL_REPO_URL` names a repository."""
    if config.repo_url:
        config.edit_uri = "edit/main/docs/"
    return config


def on_files(files: Any, *, config: Any) -> Any:
    """Adds README as the front page, the files beside it, the tutorials and the API pages."""
    tutorials = [path.relative_to(ROOT).as_posix() for path in (ROOT / "examples").glob("*.md")]
    for path in ["README.md", *BESIDE_DOCS, *sorted(tutorials)]:
        name = "index.md" if path == "README.md" else path
        page = _add(files, config, name, (ROOT / path).read_text(encoding="utf-8"))
        page.edit_uri = f"../{path}"
    files.get_file_from_path("commands.md").edit_uri = None  # a program writes it
    for title, names in API.items():
        text = "\n\n".join([f"# {title}", *(f"::: {name}" for name in names)])
        _add(files, config, f"api/{re.sub('[^a-z]+', '-', title.lower())}.md", text)
    return files


def _add(files: Any, config: Any, name: str, text: str) -> File:
    page = File.generated(config, name, content=text)
    files.append(page)
    return page


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """Rewrites links for the site's folders; a link to source code becomes its text."""
    name = page.file.src_uri
    beside = name in ("index.md", *BESIDE_DOCS) or name.startswith("examples/")
    here = posixpath.dirname(name) if beside else posixpath.join("docs", posixpath.dirname(name))

    def rewrite(match: re.Match[str]) -> str:
        mark, text, target, anchor = match.groups(default="")
        if "://" in target or target.startswith("mailto:"):
            return match.group()
        path = posixpath.normpath(posixpath.join(here, target))
        path = "index.md" if path == "README.md" else path.removeprefix("docs/")
        if not files.get_file_from_path(path):
            return (
                text if (ROOT / "docs" / path).exists() or (ROOT / path).exists() else match.group()
            )
        return f"{mark}[{text}]({posixpath.relpath(path, posixpath.dirname(name) or '.')}{anchor})"

    if name == "index.md":  # images in HTML, whose width Markdown cannot give
        markdown = re.sub(r'((?:src|srcset|href)="?)docs/', r"\1", markdown)
    return LINK.sub(rewrite, markdown)
