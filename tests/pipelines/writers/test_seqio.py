"""seqio reads a set of --encoding=int64_list as a Task over TFExampleDataSource.

seqio brings a TensorFlow Datasets of its own (tfds-nightly, of 2023), which overwrites ours: this
test is for an environment beside the project's,

    uv pip install seqio-nightly 'tensorflow>=2.21,<2.22' array-record pytest

and is skipped where seqio is missing.
"""

import json
from glob import glob

import numpy as np
import pytest

from tests.tools.shard_factory import write_mlm_set
from trainers.reader import ShardSet

seqio = pytest.importorskip(
    "seqio", reason="seqio is not installed; its tfds-nightly excludes ours"
)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_task_reads_every_row(tmp_path):
    import tensorflow as tf

    directory = str(tmp_path / "set")
    write_mlm_set(tmp_path / "set", encoding="int64_list")
    with open(f"{directory}/schema.json") as file:
        schema = json.load(file)
    source = seqio.TFExampleDataSource(
        {s: sorted(glob(f"{directory}/{s}-*.tfrecord")) for s in schema["splits"]},
        {f["name"]: tf.io.FixedLenFeature(f["shape"], tf.int64) for f in schema["features"]},
    )
    ids = seqio.Feature(
        seqio.PassThroughVocabulary(schema["vocab_size"]), add_eos=False, dtype=tf.int64
    )
    seqio.TaskRegistry.add(
        "textmill",
        source=source,
        preprocessors=[],
        output_features={f["name"]: ids for f in schema["features"]},
    )
    task = seqio.get_mixture_or_task("textmill")
    for split in schema["splits"]:
        dataset = task.get_dataset(sequence_length=None, split=split, shuffle=False)
        shards = ShardSet(directory)
        written = shards.read(split, np.arange(shards.rows(split)))
        names = [feature["name"] for feature in schema["features"]]
        rows = [[row[n].tolist() for n in names] for row in dataset.as_numpy_iterator()]
        expected = [[written[n][i].tolist() for n in names] for i in range(shards.rows(split))]
        assert sorted(rows) == sorted(expected)  # it takes turns between the files
