"""Trains a tokenizer: counts or reads words, merges, and writes all files to the staging folder."""

import os

from textmill.pipelines.readers.sources import Block
from textmill.pipelines.runners.result import Say
from textmill.pipelines.tokenizer import check, output
from textmill.pipelines.tokenizer.counting import count_words, read_words
from textmill.pipelines.tokenizer.fertility import measure_groups
from textmill.pipelines.tokenizer.merging import merge
from textmill.pipelines.tokenizer.options import TokenizerOptions, load_model
from textmill.pipelines.tokenizer.special_roles import config_json, tokenizer_settings
from textmill.pipelines.writers.staging import Staging
from textmill.schemas.commands.flag_file import CONFIG, config_bytes
from textmill.schemas.errors import Caution
from textmill.schemas.files import store
from textmill.schemas.format.agreement import REPORT, TOKENIZER
from textmill.schemas.format.manifest import HISTOGRAM
from textmill.schemas.format.tokenizer_report import TokenizerReport
from textmill.schemas.tokenizers.tokenizer_json import TOKENIZER_CONFIG
from textmill.schemas.typed_json import to_json


def train(
    options: TokenizerOptions,
    blocks: list[Block],
    beam_arguments: list[str],
    staging: Staging,
    say: Say,
    warnings: list[Caution],
) -> TokenizerReport:
    """Writes all files to the staging directory."""

    def path(name: str) -> str:
        return os.path.join(staging.folder, name)

    def write(name: str, content: bytes) -> None:
        store.write_file(path(name), content)

    if options.from_histogram:
        histogram, text = read_words(options, options.from_histogram)
        write(HISTOGRAM, store.read(options.from_histogram))
    else:
        histogram, text = count_words(options, blocks, beam_arguments, staging, say)
    warnings += check.warn_of_returns(histogram)
    model = load_model(options.model)
    words = model.words_of(histogram, options)
    say(f"merging: {words.counts.num_rows:,} distinct words")
    trained = merge(options, words)
    tokenizer = model.tokenizer_of(trained, words, options)
    write(TOKENIZER, tokenizer.to_str(pretty=True).encode())
    settings = tokenizer_settings(options, model)
    write(TOKENIZER_CONFIG, config_json(settings))
    warnings += check.warn_of_endless_turns(settings, options.specials)
    report = output.report_of(
        options.parameters(),
        text,
        words,
        trained,
        fertility=()
        if options.from_histogram
        else measure_groups(store.read(path(output.SAMPLE)), tokenizer),
    )
    write(REPORT, to_json(report))
    write(CONFIG, config_bytes("pipelines.train_tokenizer", options))
    return report
