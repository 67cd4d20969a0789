"""Merges words to a vocabulary, with a progress display."""

import time
from concurrent.futures import ThreadPoolExecutor, wait

import numpy as np
from rich.progress import MofNCompleteColumn, Progress

from textmill.pipelines.runners.console import Console, duration
from textmill.pipelines.tokenizer.histogram import Histogram
from textmill.pipelines.tokenizer.merge_loop import TrainedVocabulary
from textmill.pipelines.tokenizer.options import TokenizerOptions, load_model

_LINE_SECONDS = 5.0  # between lines of progress without a terminal


def merge(options: TokenizerOptions, words: Histogram) -> TrainedVocabulary:
    """Trains in a thread, to show progress on standard error and to respond to Ctrl-C."""
    progress = np.zeros(2, np.int64)
    console = Console(stderr=True)
    with (
        Progress(
            *Progress.get_default_columns(),
            MofNCompleteColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        ) as bar,
        ThreadPoolExecutor(1) as pool,
    ):
        task = bar.add_task("merging", total=options.vocab_size)
        training = pool.submit(load_model(options.model).train, words, options, progress)
        try:
            start = began = told = time.monotonic()
            first = 0  # tokens when merging began, after the loops were compiled
            while not wait([training], timeout=0.1).done:
                now, done = time.monotonic(), int(progress[0])
                if not first:
                    began, first = now, done
                bar.update(task, completed=done)
                if not console.is_terminal and now - told >= _LINE_SECONDS:
                    told = now
                    rest = f"{now - start:.0f} s"
                    if done > first:
                        seconds = (now - began) * (options.vocab_size - done) / (done - first)
                        rest = f"{duration(seconds)} left"
                    line = f"train_tokenizer: merging: {done:,} of {options.vocab_size:,} tokens"
                    console.print(f"{line}, {rest}", soft_wrap=True)
        except KeyboardInterrupt:
            progress[1] = 1  # stops the loop
            raise
        return training.result()
