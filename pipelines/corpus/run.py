"""Runs build_corpus from parsed options: finds the finished corpus, or builds it."""

import shlex
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from rich.filesize import decimal

from textmill.pipelines.corpus.decontamination.report import warn_of_targets
from textmill.pipelines.corpus.decontamination.targets import prepare_filters
from textmill.pipelines.corpus.filters import warn_of
from textmill.pipelines.corpus.job import CorpusJob
from textmill.pipelines.corpus.options import CorpusOptions
from textmill.pipelines.corpus.partition import SOURCE
from textmill.pipelines.corpus.plan import plan_corpus
from textmill.pipelines.corpus.report import funnel_table
from textmill.pipelines.corpus.short_pages import warn_of_hosts
from textmill.pipelines.input_options import assumed_bytes
from textmill.pipelines.readers.corpus_metadata import (
    FILLED,
    Corpus,
    CorpusSchema,
    read_corpus,
    read_file,
    read_hosts,
)
from textmill.pipelines.readers.http_body import BODY_CUT, RESPONSES
from textmill.pipelines.readers.page_hosts import PAGES, SHORT_PAGES, WEB_PAGES
from textmill.pipelines.readers.sources import (
    Block,
    describe_documents,
    has_blocks,
    plan_blocks,
)
from textmill.pipelines.runners.block_run import BlockRun
from textmill.pipelines.runners.console import Console, facts_table
from textmill.pipelines.runners.launch import choose_runner
from textmill.pipelines.runners.sample import count_text_bytes
from textmill.pipelines.writers.output_directory import (
    CORPUS,
    is_corpus,
    other_inputs,
    refuse_another,
    refuse_others,
    refuse_own_inputs,
)
from textmill.pipelines.writers.staging import Staging, find_or_make
from textmill.schemas.commands.entry import import_later
from textmill.schemas.commands.flag_file import config_bytes
from textmill.schemas.commands.terminal import command_name, number_of
from textmill.schemas.drops import REJECTED, describe_dropped
from textmill.schemas.manifest import DECONTAMINATION

if TYPE_CHECKING:
    import apache_beam as beam

# Imports Beam, which takes a second.
_build_corpus = import_later("textmill.pipelines.corpus.transforms:BuildCorpus")
_console = Console(soft_wrap=True)


def build_or_find(options: CorpusOptions, beam_arguments: list[str]) -> None:
    """Builds the corpus unless it is finished already; with --dry_run only prints the plan.

    Raises:
      UsageError: the flags do not fit the inputs or the output directory.
      DataError: the inputs are damaged or empty.
    """
    began = time.monotonic()
    refuse_others(options.output, CORPUS)
    blocks = plan_blocks(options.source())
    if options.keep_source:  # names of files are content
        blocks = [
            replace(block, parts=tuple(replace(p, also_hashed=p.path) for p in block.parts))
            for block in blocks
        ]
    refuse_own_inputs(options.output, (part.path for block in blocks for part in block.parts))
    documents = describe_documents(blocks, options.source())
    total = sum(block.bytes for block in blocks)
    assumed = assumed_bytes(options.assume_bytes, dry_run=options.dry_run) or total
    text = int(count_text_bytes(options.source(), blocks) * (assumed / total))
    schema = options.schema(text)
    beam_arguments, how = choose_runner(beam_arguments, assumed)
    run = run_of(options, blocks, beam_arguments, how)
    if options.dry_run:
        plan = plan_corpus(options, schema, run, assumed / total)
        _console.print(facts_table(plan.facts(options), title="plan (nothing was written)"))
        for warning in plan.warnings():
            _console.print(f"warning: {warning}", style="yellow")
        return
    finished = find_or_make(
        options.output,
        lambda: _find_finished(options, schema, blocks),
        lambda staging: _build(options, schema, run, staging),
    )
    if finished is not None:
        _console.print(
            f"{options.output} already holds this corpus (fingerprint "
            f"{schema.fingerprint[:12]}): nothing to do"
        )
        _print_summary(finished, documents)
    else:
        _print_summary(read_corpus(options.output), documents, seconds=time.monotonic() - began)


def run_of(
    options: CorpusOptions, blocks: list[Block], beam_arguments: list[str], how: str = ""
) -> BlockRun:
    """The run of these blocks on the runner that `beam_arguments` names."""
    return BlockRun(
        "build_corpus",
        options.source(),
        blocks,
        beam_arguments,
        how,
        options.shuffle_by,
        options.filters.filter,
    )


def _find_finished(
    options: CorpusOptions, schema: CorpusSchema, blocks: list[Block]
) -> Corpus | None:
    """The corpus in the output directory; raises UsageError if it has other flags or inputs."""
    refuse_others(options.output, CORPUS)
    if options.overwrite or not is_corpus(options.output):
        return None
    corpus = read_corpus(options.output)
    differing = corpus.schema.differences(schema) or other_inputs(corpus.inputs, blocks)
    refuse_another(options.output, "a corpus with other settings or inputs", differing)
    return corpus


def _build(options: CorpusOptions, schema: CorpusSchema, run: BlockRun, staging: Staging) -> None:
    """Runs the pipeline, whose last step publishes the corpus."""
    _console.print(f"{run.facts}; shuffle by {run.shuffle_by}")
    run.prepare(staging, _console.print)
    filters = prepare_filters(options.filters, run, staging, _console.print)
    run.execute(
        wire(replace(options, filters=filters), schema, run, staging),
        staging,
        is_done=lambda: not has_blocks(staging.folder),  # publishing removes the folder
    )


def wire(
    options: CorpusOptions, schema: CorpusSchema, run: BlockRun, staging: Staging
) -> "Callable[[beam.Pipeline], None]":
    """Returns the function that adds the transforms to a pipeline."""

    def build(pipeline: "beam.Pipeline") -> None:
        job = run.job(
            CorpusJob,
            staging,
            filters=options.filters,
            schema=schema,
            output=options.output,
            keep_source=options.keep_source,
            max_rejects=options.reading.max_rejects,
            config=config_bytes("pipelines.build_corpus", options),
            near=options.near.rule(),
            paragraphs=options.paragraphs(),
        )
        _ = pipeline | _build_corpus(job)

    return build


def _print_summary(corpus: Corpus, documents: str, *, seconds: float | None = None) -> None:
    """Prints warnings, the counts of a corpus, what a document was, and the next commands."""
    stats, total = corpus.stats, corpus.stats.total()
    size = sum(file.bytes for file in corpus.documents)
    # Filtered and deduplicated documents are in the table below.
    bad = {n: count for n, count in stats.dropped.items() if n not in stats.funnel.removed}
    counts = f"{stats.documents_read:,} read, {total.documents:,} kept"
    facts = {
        "documents": "; ".join(filter(None, (counts, documents))),
        **describe_dropped(bad, (REJECTED,)),
        "text": f"{decimal(total.text_bytes)}, {total.words:,} words",
        "size": f"{decimal(size)} in {number_of(len(corpus.documents), 'file')} of documents",
    }
    if cut := stats.observed.get(RESPONSES, {}).get(BODY_CUT):
        facts["cut pages"] = f"{cut:,}, whose stored bodies are cut or damaged and end early"
    web = stats.observed.get(WEB_PAGES, {})
    if short := web.get(SHORT_PAGES):
        facts["short main texts"] = (
            f"{short:,} of {number_of(web[PAGES], 'web page')}, below a tenth of the visible text"
        )
    if seconds is not None:
        facts["time"] = f"{seconds:.1f} s"
    for warning in _warnings(corpus):
        _console.print(f"warning: {warning}", style="yellow")
    directory = shlex.quote(corpus.directory)
    _console.print(facts_table(facts | {"corpus": corpus.directory}))
    if stats.funnel.removed:
        _console.print("", funnel_table(stats.funnel), "")
    _console.print(
        f"train a tokenizer: {command_name('pipelines.train_tokenizer')} --input={directory} ..."
    )
    build_shards = command_name("pipelines.build_shards")
    _console.print(f"make shards: {build_shards} --input={directory} ...")


def _warnings(corpus: Corpus) -> list[str]:
    """Warnings about rules that remove too much, texts not searched for, and empty fields."""
    stats = corpus.stats
    filled = stats.observed.get(FILLED, {})
    kept = [name for name in corpus.schema.columns[2:] if name not in SOURCE]
    empty = [name for name in kept if name not in filled]
    warnings = warn_of(stats.funnel, stats.observed)
    if any(file.path == DECONTAMINATION for file in corpus.manifest.files):
        report = read_file(corpus, DECONTAMINATION)
        warnings += warn_of_targets(report, corpus.schema.parameters)
    warnings += warn_of_hosts(read_hosts(corpus))
    return warnings + [
        f"--keep_fields: {name} is missing or empty in all documents: check the field's name"
        for name in empty
    ]
