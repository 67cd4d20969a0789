"""What the functions of textmill return: directories with their counts, for the next call."""

from __future__ import annotations

import base64
import os
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, overload

from textmill.keywords import Keywords
from textmill.schemas.commands.terminal import number_of
from textmill.schemas.errors import UsageError
from textmill.schemas.files import finished
from textmill.schemas.format.corpus_metadata import CorpusSchema, CorpusStatistics
from textmill.schemas.format.metadata import Schema
from textmill.schemas.format.statistics import Statistics
from textmill.schemas.format.tokenizer_report import TokenizerReport

if TYPE_CHECKING:
    from textmill.pipelines.inspection.report.parts import Shown
    from textmill.trainers.run.training_task import Prediction
    from textmill.trainers.use.open_model import OpenModel

T = TypeVar("T")


@dataclass(frozen=True)
class Output(os.PathLike):
    """A finished directory. It is a path: give it to the next call, or to a command.

    Attributes:
      directory: its path or URL.
      warnings: what the run that made or found it warned of.
      seconds: the time of the run that made it; None if it was finished before.
    """

    directory: str
    warnings: tuple[str, ...] = ()
    seconds: float | None = None

    report_name: ClassVar[str] = "report.html"

    def __fspath__(self) -> str:
        """Its path or URL."""
        return self.directory

    def __str__(self) -> str:
        """Its path or URL, for a command line."""
        return self.directory

    @property
    def report(self) -> str:
        """The path of its report."""
        return os.path.join(self.directory, self.report_name)

    @abstractmethod
    def facts(self) -> dict[str, str]:
        """Its most important counts, by their titles."""

    def _head(self) -> Sequence[Shown]:
        """The head of its report and a picture, or its counts."""
        from textmill.pipelines.inspection.report.parts import FactList  # numpy only

        return [FactList(self.facts())]

    def _repr_html_(self) -> str:
        """The head of its report with a picture, for a notebook."""
        # Only a notebook needs jinja2.
        from textmill.pipelines.inspection.report.page import render_head
        from textmill.pipelines.inspection.report.parts import FactList

        facts = {type(self).__name__.lower(): self.directory}
        facts.update({"warning" + " " * i: text for i, text in enumerate(self.warnings)})
        return render_head([*self._head(), FactList(facts)])


class Corpus(Output):
    """A corpus: clean documents, each once."""

    @cached_property
    def _content(self) -> finished.Corpus:
        return finished.open_finished(finished.Corpus, self.directory)

    @property
    def schema(self) -> CorpusSchema:
        """Columns, and the settings that decide the content."""
        return self._content.schema

    @property
    def stats(self) -> CorpusStatistics:
        """All counts."""
        return self._content.stats

    def facts(self) -> dict[str, str]:
        """Documents, words, bytes and files."""
        total = self.stats.total()
        return {
            "documents": f"{self.stats.documents_read:,} read, {total.documents:,} kept",
            "words": f"{total.words:,}",
            "bytes of text": f"{total.text_bytes:,}",
            "files": f"{self.schema.files:,}",
        }

    def _head(self) -> Sequence[Shown]:
        # The pipelines' packages, see `_content`.
        from textmill.pipelines.corpus.report import corpus_flow, corpus_head
        from textmill.pipelines.inspection.report.shared_sections import show_flows

        head = corpus_head(self.stats, self._content.manifest.files)
        return [head, show_flows({"Documents": corpus_flow(self.stats)})]


class Tokenizer(Output):
    """A tokenizer; `tokenizers` and `transformers` read its directory, too."""

    report_name = "report.json"

    @cached_property
    def stats(self) -> TokenizerReport:
        """The content of report.json: counts of the text and the vocabulary, fertility."""
        return finished.open_finished(finished.TokenizerInfo, self.directory).report

    def facts(self) -> dict[str, str]:
        """Vocabulary and text."""
        return {
            "vocabulary": f"{self.stats.vocab_size:,} tokens, {self.stats.merges:,} merges",
            "text": f"{self.stats.text.documents:,} documents, {self.stats.text.bytes:,} bytes",
            "bytes per token": f"{self.stats.bytes_per_token:.3f}",
        }

    def _head(self) -> Sequence[Shown]:
        from textmill.pipelines.inspection.report.numbers import tile
        from textmill.pipelines.inspection.report.parts import CellTable, Figure, ReportHead

        stats = self.stats
        tiles = {
            "merges": tile(stats.merges),
            "documents": tile(stats.text.documents),
            "bytes of text": tile(stats.text.bytes),
            "bytes per token": f"{stats.bytes_per_token:.3f}",
            "words of one token": f"{stats.words_of_one_token:.1%}",
        }
        rows = [
            (one.group, one.documents, f"{one.tokens_per_word:.2f}", f"{one.bytes_per_token:.2f}")
            for one in stats.fertility
        ]
        heads = ("group", "documents", "tokens per word", "bytes per token")
        table = [Figure("Fertility", CellTable(rows, heads))] if rows else []
        return [ReportHead("tokenizer", f"{stats.vocab_size:,} tokens", tiles), *table]


@dataclass(frozen=True)
class QualityModel(os.PathLike):
    """The file of a model of quality. It is a path: give it to `build_corpus`.

    Attributes:
      path: its path or URL.
      evaluation: the content of PATH.json, such as evaluation["held_out"]["auc"].
    """

    path: str
    evaluation: dict[str, Any]

    def __fspath__(self) -> str:
        """Its path or URL."""
        return self.path

    def __str__(self) -> str:
        """Its path or URL, for a command line."""
        return self.path


class Dataset(Output):
    """A dataset of rows; `ShardSet(dataset)` reads them."""

    @cached_property
    def _content(self) -> finished.DatasetInfo:
        return finished.read_dataset(self.directory)

    @property
    def schema(self) -> Schema:
        """Task, features, splits and special tokens."""
        return self._content.schema

    @property
    def stats(self) -> Statistics:
        """All counts."""
        return self._content.stats

    def facts(self) -> dict[str, str]:
        """Task, documents, rows, tokens and packing efficiency."""
        schema, stats, total = self.schema, self.stats, self.stats.total()
        rows = (f"{split} {stats.split(split).rows:,}" for split in sorted(schema.splits))
        facts = {
            "task": schema.task,
            "documents": f"{stats.documents_read:,} read, {total.documents:,} kept",
            "splits" if schema.holds_documents else "rows": ", ".join(rows),
            "tokens": f"{total.tokens:,}",
        }
        if length := schema.row_tokens:
            efficiency = total.packing_efficiency(length)
            facts["packing efficiency"] = f"{efficiency:.2%} of positions in rows of {length}"
        return facts

    def _head(self) -> Sequence[Shown]:
        try:
            from textmill.pipelines.inspection.report.sections import set_flow, set_head
            from textmill.pipelines.inspection.report.shared_sections import show_flows
        except ImportError:  # a host of trainers does not have the pipelines' packages
            return super()._head()
        head = set_head(self.schema, self.stats, self._content.manifest.files)
        return [head, show_flows({"Documents": set_flow(self.schema, self.stats)})]


class Run(Output):
    """The directory of a training run."""

    report_name = "loss.png"

    @cached_property
    def settings(self) -> dict[str, Any]:
        """Trainer, flags (`config`), model and the fingerprint of the rows."""
        return finished.open_finished(finished.RunInfo, self.directory).config.plain()

    def metrics(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl: `kind` is train or evaluation, `step`, `loss` and others."""
        from textmill.trainers.run.journal import METRICS, each_metrics  # see `settings`

        return list(each_metrics(os.path.join(self.directory, METRICS)))

    @overload
    def generate(self, text: str, *, samples: int, **settings: Any) -> list[str]: ...

    @overload
    def generate(self, text: str, **settings: Any) -> str: ...

    def generate(self, text: str, **settings: Any) -> str | list[str]:
        """Continues a text with the model of a run of flax_clm.

        Args:
          text: the beginning.
          **settings: flags of `textmill generate`, such as temperature=0.8,
            max_new_tokens=64, samples=3, checkpoint="best".

        Returns:
          The text and its continuation; a list of them if `samples` is given.
        """
        return self._write("generate", {"text": text, **settings})

    @overload
    def chat(self, message: str, *, samples: int, **settings: Any) -> list[str]: ...

    @overload
    def chat(self, message: str, **settings: Any) -> str: ...

    def chat(self, message: str, **settings: Any) -> str | list[str]:
        """Answers a message with the model of a run on conversations; settings as of `generate`."""
        return self._write("chat", {"message": message, **settings})

    def evaluate(self, **settings: Any) -> dict[str, float] | list[dict[str, float]]:
        """Evaluates the model on a split; plots and predictions go to RUN/evaluation.

        Args:
          **settings: flags of `textmill evaluate`, such as shards=data (default: the
            dataset of the run), validation_split="test", checkpoint="last".

        Returns:
          "step" and the metrics; with checkpoint="all" a list of them.
        """

        def work(model: OpenModel) -> Any:
            # The trainers' packages, which a host of pipelines does not have.
            from textmill.trainers.run.journal import ProgressLine
            from textmill.trainers.use.evaluate_model import evaluate_model

            line = ProgressLine()
            found = evaluate_model(model, line, line.say)
            return [{"step": int(one.checkpoint), **one.metrics} for one in found]

        rows = self._use("evaluate", settings, work)
        return rows if settings.get("checkpoint") == "all" else rows[0]

    def predict(
        self, texts: Path | str | Sequence[str | Sequence[str]], **settings: Any
    ) -> list[Prediction]:
        """Labels texts with the model of a run of tf_classifier or poptorch_classifier.

        Args:
          texts: a list of them, of two each if the model classifies pairs; or a file as of
            `textmill predict`.
          **settings: flags of `textmill predict`, such as checkpoint="last".

        Returns:
          The label and the probability of each.
        """
        is_file = isinstance(texts, (str, os.PathLike))
        source = os.fspath(texts) if is_file else list(texts)

        def work(model: OpenModel) -> list[Prediction]:
            from textmill.trainers.use.label_texts import (  # see `evaluate`
                label_texts,
                write_predictions,
            )

            found = list(label_texts(model, source))
            if model.use.output is not None:
                write_predictions(found, model.use.output)
            return found

        return self._use("predict", {"input": source, **settings} if is_file else settings, work)

    def export(self, output: str | os.PathLike[str], **settings: Any) -> str:
        """Writes the weights as a directory for transformers; returns its path.

        Args:
          output: the directory, which must not exist yet.
          **settings: flags of `textmill export-model`, such as checkpoint="last".
        """
        path = os.fspath(output)

        def work(model: OpenModel) -> str:
            from textmill.trainers.run.journal import ProgressLine  # see `evaluate`
            from textmill.trainers.use.model_export import export_model

            export_model(model, ProgressLine().say)
            return path

        return self._use("export_model", {"output": path, **settings}, work)

    def _write(self, verb: str, settings: dict[str, Any]) -> Any:
        def work(model: OpenModel) -> list[str]:
            from textmill.trainers.use.write_texts import write_texts  # see `evaluate`

            return write_texts(model)

        texts = self._use(verb, settings, work)
        return texts if "samples" in settings else texts[0]

    def _use(self, name: str, settings: dict[str, Any], work: Callable[[OpenModel], T]) -> T:
        """The result of some work with the model, opened with these flags of a command."""
        trainer = self.settings["trainer"]

        def options() -> tuple[type]:
            from textmill.trainers.use.use_flags import import_trainer, options_of  # see `evaluate`
            from textmill.trainers.use.verbs import VERBS

            return (options_of(VERBS[name], import_trainer(trainer).flags()),)

        keywords = Keywords(name, options, trainer.partition("_")[0])

        def use() -> T:
            from textmill.trainers.use.open_model import open_model  # see `evaluate`
            from textmill.trainers.use.verbs import VERBS

            argv, given = keywords.given(settings)
            with open_model([self.directory, *argv], VERBS[name], given) as model:
                return work(model)

        return keywords.call(use)

    def _losses(self) -> dict[str, list[tuple[int, float]]]:
        """Title to steps and losses."""
        lines = self.metrics()
        losses = {
            title: [(line["step"], line["loss"]) for line in lines if line["kind"] == kind]
            for kind, title in (("train", "training loss"), ("evaluation", "validation loss"))
        }
        return {title: points for title, points in losses.items() if points}

    def facts(self) -> dict[str, str]:
        """Trainer, steps and losses."""
        facts = {"trainer": self.settings["trainer"]}
        for title, losses in self._losses().items():
            (first_step, first), (step, last) = losses[0], losses[-1]
            facts[title] = f"{last:.4f} at step {step:,}, {first:.4f} at step {first_step:,}"
        return facts

    def _head(self) -> Sequence[Shown]:
        from textmill.pipelines.inspection.report.parts import Picture, ReportHead

        last = {title: points[-1] for title, points in self._losses().items()}
        steps = max((step for step, _ in last.values()), default=0)
        tiles = {title: f"{loss:.4f}" for title, (_, loss) in last.items()}
        head = ReportHead(f"run · {self.settings['trainer']}", number_of(steps, "step"), tiles)
        if not os.path.exists(self.report):
            return [head]
        picture = base64.b64encode(Path(self.report).read_bytes()).decode()
        return [head, Picture("losses", picture)]


def open_directory(directory: str | os.PathLike[str]) -> Corpus | Dataset | Tokenizer | Run:
    """Opens the directory of a corpus, a dataset, a tokenizer or a training run.

    Raises:
      UsageError: it is none of them.
      DataError: its metadata files are damaged or contradict each other.
    """
    path = os.fspath(directory)
    kind = _kind_of(path)
    if kind is None:
        raise UsageError(
            f"{path} holds no finished corpus, dataset, tokenizer or run: give the output "
            "directory of one"
        )
    output = kind(path)
    output.facts()  # reads what is there
    return output


def _kind_of(path: str) -> type[Corpus] | type[Dataset] | type[Tokenizer] | type[Run] | None:
    if kind := finished.kind_of(path):
        return _OUTPUTS[kind]
    return Run if finished.is_run(path) else None


_OUTPUTS = {
    finished.DatasetInfo: Dataset,
    finished.Corpus: Corpus,
    finished.TokenizerInfo: Tokenizer,
}
