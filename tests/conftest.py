"""What many tests share: real text that every Python carries, a tokenizer of it, stores."""

import atexit
import contextlib
import gc
import json
import os
import pydoc_data.topics
import signal

import hypothesis
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from tests.tools.quick_libraries import quicken_tyro
from tests.tools.store_servers import (  # noqa: F401  fixtures
    gs_session_server,
    gs_store,
    s3_session_server,
    s3_store,
    store,
)
from tests.tools.swig_types import keep_swig_types

with contextlib.suppress(ImportError):
    import triton  # noqa: F401  of PyTorch; the process aborts where it comes after TensorFlow

quicken_tyro()
os.environ.setdefault("JAX_PLATFORMS", "cpu")  # tolerances are those of float32, sums in one order
if "CI" not in os.environ:
    os.fsync = lambda fd: None  # a tenth of a small run waits for the disk

# A machine may be busy, and what is compiled takes its time once: no deadline. Continuous
# integration tries the same examples every time, so that a red run is the commit's fault; people
# try fewer, and others each time. More: HYPOTHESIS_PROFILE=thorough.
_CLOCK = {"deadline": None, "suppress_health_check": [hypothesis.HealthCheck.too_slow]}
hypothesis.settings.register_profile("people", max_examples=40, **_CLOCK)
hypothesis.settings.register_profile("ci", max_examples=100, derandomize=True, **_CLOCK)
hypothesis.settings.register_profile("thorough", max_examples=2000, **_CLOCK)
_PROFILE = "ci" if "CI" in os.environ else "people"
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", _PROFILE))


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Imported modules contain no garbage; searching them takes 5 s now, and as much later."""
    gc.disable()
    result = yield
    gc.freeze()
    gc.enable()
    return result


def pytest_unconfigure():
    """Transformers imports SentencePiece, too."""
    keep_swig_types()


# PyTorch prints thirty lines about objects that are frozen at the end. Until then pytest's last
# search for garbage, five times over, need not go through all modules. A worker of pytest-xdist has
# reported by then: taking its modules apart takes five seconds.
atexit.register(gc.unfreeze)
if "PYTEST_XDIST_WORKER" in os.environ:
    atexit.register(os._exit, 0)


@pytest.fixture(autouse=True)
def process_that_goes_on():
    """Undoes what a command that ran in this process did to the process's end.

    In the background (`make test &`, nohup) SIGINT is ignored, which children would inherit.
    """
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, handler)


SPECIALS = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


@pytest.fixture(scope="session")
def topics():
    """Paragraphs of Python's own help."""
    return [t for topic in pydoc_data.topics.topics.values() for t in topic.split("\n\n")]


@pytest.fixture(scope="session")
def tokenizer_path(topics, tmp_path_factory):
    """A tokenizer.json of 2,000 ids in RoBERTa's form."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=2000,
        special_tokens=SPECIALS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(topics[:1000], trainer)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    tokenizer.save(str(path))
    return str(path)


@pytest.fixture(scope="session")
def sentinels(tokenizer_path, tmp_path_factory):
    """The same with the sentinels of span corruption."""
    tokenizer = Tokenizer.from_file(tokenizer_path)
    tokenizer.add_special_tokens([f"<extra_id_{n}>" for n in range(100)])
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    tokenizer.save(str(path))
    return str(path)


@pytest.fixture(scope="session")
def corpus(topics, tmp_path_factory):
    """Real text with repeats, as JSON Lines."""
    path = tmp_path_factory.mktemp("corpus") / "corpus.jsonl"
    documents = topics + topics[:50]
    path.write_text("".join(json.dumps({"text": t}) + "\n" for t in documents if t))
    return str(path)


@pytest.fixture
def written(monkeypatch):
    """Names of the shards that are written."""
    from textmill.pipelines.writers import shard_files

    names, write = [], shard_files.write_shard

    def keep(chunks, staging, name, *more):
        names.append(name)
        return write(chunks, staging, name, *more)

    monkeypatch.setattr(shard_files, "write_shard", keep)
    return names
