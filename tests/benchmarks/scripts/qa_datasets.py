"""The script for extractive question answering: windows of long contexts, answers as token places.

    python qa_datasets.py JSONL TOKENIZER.json OUTPUT LENGTH

Question and context are one pair; a context that does not fit becomes several overlapping windows
(return_overflowing_tokens); a window without the whole answer points to its first token.
"""

import sys
from typing import Any

from datasets import load_dataset
from transformers import PreTrainedTokenizerFast

STRIDE = 128  # tokens that windows share


def main(path: str, tokenizer_path: str, output: str, row_tokens: str) -> None:
    """Questions -> rows on disk."""
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=tokenizer_path, pad_token="<pad>")
    length = int(row_tokens)

    def prepare(batch: dict[str, list]) -> dict[str, Any]:
        rows = tokenizer(
            [question.lstrip() for question in batch["question"]],
            batch["context"],
            truncation="only_second",
            max_length=length,
            stride=STRIDE,
            padding="max_length",
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
        )
        places = []
        for row, question in enumerate(rows.pop("overflow_to_sample_mapping")):
            answers = batch["answers"][question]
            start = answers["answer_start"][0]
            stop = start + len(answers["text"][0])
            places.append(_place(rows, row, start, stop))
        del rows["offset_mapping"]
        starts, ends = map(list, zip(*places, strict=True))
        return {**rows, "start_positions": starts, "end_positions": ends}

    data: Any = load_dataset("json", data_files=path, split="train", cache_dir=output + "/cache")
    data = data.map(prepare, batched=True, num_proc=2, remove_columns=data.column_names)
    data.save_to_disk(output + "/set")


def _place(rows: Any, row: int, start: int, stop: int) -> tuple[int, int]:
    """First and last token of the characters start to stop of the context; (0, 0) if not here."""
    offsets = rows["offset_mapping"][row]
    of_context = [i for i, part in enumerate(rows.sequence_ids(row)) if part == 1]
    first, last = of_context[0], of_context[-1]
    if offsets[first][0] > start or offsets[last][1] < stop:
        return 0, 0
    while first <= last and offsets[first][0] <= start:
        first += 1
    while last >= 0 and offsets[last][1] >= stop:
        last -= 1
    return first - 1, last + 1


if __name__ == "__main__":
    main(*sys.argv[1:])
