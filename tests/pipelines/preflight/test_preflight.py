"""--preflight: a job that passes, jobs that would fail each for one reason, and what is printed."""

import re
import socket
import sys
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from tests.tools.places import ROOT
from textmill.pipelines.build_corpus import main as build_corpus
from textmill.pipelines.build_shards import main as build_shards
from textmill.pipelines.preflight import job, reach
from textmill.pipelines.preflight.check import Check
from textmill.pipelines.preflight.flags import check_flags
from textmill.pipelines.runners import job_server
from textmill.pipelines.train_tokenizer import main as train_tokenizer
from textmill.schemas.errors import DataError, UsageError, as_flags

DATAFLOW = ["--runner=DataflowRunner", "--project=my-project", "--region=europe-west4"]


@pytest.fixture
def all_loads(monkeypatch):
    """As if the job had been unpickled, which takes seconds."""
    monkeypatch.setattr(job, "load_job", lambda *_: (31, []))


@pytest.fixture
def remote(gs_store, topics):
    """Flags of a job that passes."""
    for number in range(3):
        lines = [topic.replace("\n", " ") for topic in topics[number::3]]
        gs_store.put(f"in/{number}.txt", "\n".join(lines).encode())
    return [
        *DATAFLOW,
        f"--temp_location={gs_store.url('tmp')}",
        f"--input={gs_store.url('in/*.txt')}",
        "--document=line",
        f"--output={gs_store.url('out')}",
    ]


def printed(capsys, store, tokenizer_path):
    """The printed lines, without paths, and without sizes of our code and of Python's topics."""
    text = capsys.readouterr().out
    for path, name in ((store and store.bucket, "my-bucket"), (tokenizer_path, "tokenizer.json")):
        text = text.replace(path, name) if path else text
    text = re.sub(r"[\d.]+ kB", "# kB", text)
    return text.splitlines()


def row(state, name, found):
    """A line of what is printed."""
    return f"{state:12} {name:16} {found}"


SETTINGS = row("ok", "settings", "what they name loads here, and fits together")
PACKAGE = row("ok", "workers' package", "# kB; it requires the versions of this machine")
UNPICKLED = row("ok", "unpickling", r"all \d+ functions and coders load in a new interpreter")


def failures(capsys, main, *flags):
    """Names and reasons of the checks that failed."""
    with pytest.raises(DataError) as error:
        main(["--preflight", *flags])
    lines = capsys.readouterr().out.splitlines()
    found = {x[13:29].strip(): x[30:] for x in lines if x.startswith("failed ")}
    assert str(error.value).startswith(f"{len(found)} of ")
    return found


@pytest.mark.slow
def test_a_job_that_passes(remote, gs_store, tokenizer_path, capsys):
    """The job of docs/dataflow.md, unpickled with the modules of the workers' package."""
    flags = ["--task=tokens", "--file_format=megatron", "--splits=train:0.999,validation:0.001"]
    flags += [f"--tokenizer={tokenizer_path}", "--num_shards=train:1024,validation:1"]
    build_shards(["--preflight", *remote, *flags])
    lines = printed(capsys, gs_store, tokenizer_path)
    page = (ROOT / "docs" / "dataflow.md").read_text()
    assert {*lines[6:]} <= {*re.sub(r"[\d.]+ kB", "# kB", page).splitlines()}
    assert re.fullmatch(UNPICKLED, lines.pop(8))
    assert lines == [
        "preflight of build_shards: nothing is written, no job is started",
        row("ok", "runner", "DataflowRunner; workers start from the default image"),
        row(
            "ok",
            "flags",
            "project my-project, region europe-west4, gs://my-bucket/tmp: Dataflow checks that "
            "they exist",
        ),
        row("ok", "inputs", "3 files, # kB, 1 block"),
        row("ok", "output", "gs://my-bucket/out can be reached; write permission is not checked"),
        SETTINGS,
        row("ok", "job", "28 steps, # kB, independent of the number of files"),
        PACKAGE,
        "0 of 8 checks failed",
    ]
    assert gs_store.names() == ["in/0.txt", "in/1.txt", "in/2.txt"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("main", "flags"),
    [
        (train_tokenizer, ["--vocab_size=400"]),
        (build_corpus, ["--near_duplicates=jaccard:0.8", "--duplicate_paragraphs=line:9"]),
    ],
)
def test_preflight_of_other_commands(main, flags, remote, gs_store, capsys):
    main(["--preflight", *remote, *flags])
    lines = printed(capsys, gs_store, None)
    command = main.__module__.rpartition(".")[2]
    assert lines[0] == f"preflight of {command}: nothing is written, no job is started"
    steps = r"\d+ steps, # kB, independent of the number of files"
    assert re.fullmatch(row("ok", "job", steps), lines.pop(6))
    assert re.fullmatch(UNPICKLED, lines.pop(7))
    assert lines[5:] == [SETTINGS, PACKAGE, "0 of 8 checks failed"]
    assert gs_store.names() == ["in/0.txt", "in/1.txt", "in/2.txt"]


@pytest.mark.parametrize(
    ("task", "also"), [("mlm", []), ("classification", ["settings"]), ("qa", [])], ids=str
)
def test_an_input_that_cannot_be_reached_is_reported_as_such(
    task, also, remote, gs_store, tokenizer_path, all_loads, capsys, monkeypatch
):
    """It is not a fault of the tokenizer, and all other checks have a line."""
    monkeypatch.setattr(reach, "_PATIENCE", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{port}")
        flags = [flag for flag in remote if flag != "--document=line"]
        build_shards(["--preflight", *flags, f"--tokenizer={tokenizer_path}", f"--task={task}"])
    lines = printed(capsys, gs_store, tokenizer_path)
    states = {line[13:29].strip(): line[:11].strip() for line in lines[1:-1]}
    assert set(also) <= {name for name, state in states.items() if state == "not checked"}
    assert "failed" not in states.values()
    assert {"inputs", "output", "settings", "job"} <= states.keys()
    assert lines[-1].startswith("0 of ")


def test_checks_after_a_failure_are_not_checked(remote, gs_store, corpus, all_loads, capsys):
    with pytest.raises(DataError, match="1 of 6 checks failed; 1 not checked"):
        build_shards(["--preflight", *remote, "--tokenizer=/no/such/file"])
    lines = printed(capsys, gs_store, None)
    assert lines[5].startswith("failed       settings         --tokenizer=/no/such/file: ")
    assert lines[-1] == row("not checked", "job", "the settings cannot be used")


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("--url_blocklist=/no/such/list", "/no/such/list"),
        ("--decontaminate=/no/such/text.jsonl", "/no/such/text.jsonl"),
    ],
)
def test_a_list_that_build_corpus_cannot_read(flag, said, remote, all_loads, capsys):
    found = failures(capsys, build_corpus, *remote, "--keep_fields=url", flag)
    assert found.keys() == {"settings"} and said in found["settings"]


def test_without_a_runner_the_job_is_not_checked(corpus, capsys, tmp_path):
    flags = ["--preflight", "--runner=FlonkRunner", f"--input={corpus}"]
    flags += [f"--output={tmp_path}/out"]
    for main, more in ((build_corpus, []), (train_tokenizer, ["--vocab_size=400"])):
        with pytest.raises(DataError, match="1 of 5 checks failed; [1-3] not checked"):
            main([*flags, *more])
        lines = capsys.readouterr().out.splitlines()
        assert row("not checked", "job", "the runner cannot be used") in lines


def test_a_histogram_or_a_pattern_that_leaves_nothing_to_check():
    with pytest.raises(UsageError, match="nothing to check"):
        train_tokenizer(["--preflight", "--from_histogram=x", "--output=y", "--vocab_size=400"])
    with pytest.raises(UsageError, match=r"--pattern=\(: "):
        flags = ["--input=x", "--output=y", "--vocab_size=400", "--pattern=("]
        train_tokenizer(["--preflight", *flags])


def test_flags_that_are_missing_or_wrong(
    remote, corpus, tokenizer_path, all_loads, capsys, monkeypatch, gs_store, tmp_path
):
    monkeypatch.delenv("CLOUDSDK_COMPUTE_REGION", raising=False)
    flags = [flag for flag in remote if not flag.startswith("--input")]
    without = [flag for flag in flags if not flag.startswith("--region")]
    without += [f"--tokenizer={tokenizer_path}", f"--input={corpus}", f"--output={tmp_path}/out"]
    local = "is local: Dataflow's workers cannot see it"
    assert failures(capsys, build_shards, *without) == {
        "flags": "no --region",
        "inputs": f"{corpus} {local}",
        "output": f"{tmp_path}/out {local}",
    }
    none = f"--input={gs_store.url('in/*.csv')}"
    flags += [none, "--project=12345"]
    found = failures(capsys, build_shards, *flags, f"--tokenizer={tokenizer_path}")
    assert "Invalid Project ID (12345)" in found.pop("job")  # as Beam says it
    assert found == {"inputs": f"{none}: no file matches"}
    assert "settings" in failures(capsys, build_shards, *flags, f"--tokenizer={tmp_path}")


def test_a_filter_in_main(remote, tokenizer_path, capsys, monkeypatch):
    monkeypatch.setattr(sys.modules["__main__"], "choose", lambda _: None, raising=False)
    flags = [*remote, f"--tokenizer={tokenizer_path}", "--filter=__main__:choose"]
    assert failures(capsys, build_shards, *flags) == {
        "workers' package": "--filter=__main__:choose: workers have another __main__ than this "
        "process; put the function into a separate module in the current directory, or provide it "
        "to workers in an image or an --extra_package"
    }


def test_a_filter_of_which_the_package_lacks_a_part(
    remote, tokenizer_path, capsys, monkeypatch, tmp_path
):
    (tmp_path / "words_of_mine.py").write_text("WORDS = {'spam'}\n")
    (tmp_path / "chooser_by_words.py").write_text(
        "from words_of_mine import WORDS\n\ndef choose(document):\n    return None\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    flags = [*remote, f"--tokenizer={tokenizer_path}", "--filter=chooser_by_words:choose"]
    assert failures(capsys, build_shards, *flags) == {
        "unpickling": "--filter=chooser_by_words:choose: chooser_by_words cannot be imported "
        "(ModuleNotFoundError: No module named 'words_of_mine'); modules must be where "
        "you run the command, or on PYTHONPATH, on every worker"
    }


def test_a_cluster_whose_workers_come_from_pools(corpus, tokenizer_path, capsys, tmp_path):
    job_server = grpc.server(ThreadPoolExecutor(1))
    flags = ["--runner=PortableRunner", "--environment_type=EXTERNAL"]
    flags.append(f"--job_endpoint=127.0.0.1:{job_server.add_insecure_port('127.0.0.1:0')}")
    flags += ["--environment_config=localhost:50000", f"--input={corpus}"]
    flags += [f"--tokenizer={tokenizer_path}", f"--output={tmp_path}/out"]
    job_server.start()
    build_shards(["--preflight", *flags])
    job_server.stop(None)
    lines = printed(capsys, None, tokenizer_path)
    assert lines[-1] == "0 of 6 checks failed; 3 not checked"
    states = {line[13:29].strip(): line[:11].strip() for line in lines if line[:1] in "on"}
    assert states == {
        "runner": "ok",
        "inputs": "not checked",
        "output": "not checked",
        "settings": "ok",
        "job": "ok",
        "workers' package": "not checked",
    }


def test_a_store_that_does_not_answer(
    remote, gs_store, tokenizer_path, all_loads, capsys, monkeypatch
):
    monkeypatch.setattr(reach, "_PATIENCE", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{port}")
        build_shards(["--preflight", *remote, f"--tokenizer={tokenizer_path}"])
    lines = printed(capsys, gs_store, tokenizer_path)
    no_answer = "no answer in 0.5 s: no network, or no credentials"
    assert [line for line in lines if line.startswith("not checked")] == [
        row("not checked", "inputs", f"gs://my-bucket/in/*.txt: {no_answer}"),
        row("not checked", "output", f"gs://my-bucket/out: {no_answer}"),
    ]
    assert lines[-1] == "0 of 8 checks failed; 2 not checked"


def test_preflight_reads_s3_as_runs_do(s3_store, tokenizer_path, all_loads, capsys):
    """Beam's own client of s3 would ignore the endpoint, and missing credentials."""
    s3_store.put("in/0.txt", b"Some text.\n" * 1000)
    flags = [*DATAFLOW, "--temp_location=gs://my-bucket/tmp", f"--tokenizer={tokenizer_path}"]
    flags += [f"--input={s3_store.url('in/*.txt')}", f"--output={s3_store.url('out')}"]
    build_shards(["--preflight", *flags])
    lines = printed(capsys, s3_store, tokenizer_path)
    assert row("ok", "inputs", "1 file, # kB, 1 block") in lines
    said = "s3://my-bucket/out can be reached; write permission is not checked"
    assert row("ok", "output", said) in lines
    assert s3_store.names() == ["in/0.txt"]


def test_preflight_of_a_run_on_this_machine(corpus, tokenizer_path, capsys, tmp_path):
    flags = [f"--input={corpus}", f"--tokenizer={tokenizer_path}", f"--output={tmp_path}/out"]
    build_shards(["--preflight", *flags])
    lines = printed(capsys, None, tokenizer_path)
    said = "this machine: only the plan remains to be checked, which --dry_run prints"
    assert lines[1] == row("ok", "runner", said)
    assert lines[-1] == "0 of 4 checks failed"
    assert not (tmp_path / "out").exists()


def test_a_runner_that_is_not_there(corpus, tokenizer_path, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(job_server, "_ANSWER_SECONDS", 0.5)
    flags = [f"--input={corpus}", f"--tokenizer={tokenizer_path}", f"--output={tmp_path}/out"]
    found = failures(capsys, build_shards, "--runner=FlonkRunner", *flags)
    assert "FlonkRunner" in found["runner"]
    flags += ["--runner=PortableRunner", "--environment_type=LOOPBACK"]
    assert failures(capsys, build_shards, *flags, "--job_endpoint=127.0.0.1:1") == {
        "runner": "--job_endpoint=127.0.0.1:1: no job server answers within 0.5 s; start it, "
        "or correct the address (the usual port is 8099)"
    }


def test_dataflow_without_its_packages_is_reported_in_words(
    remote, tokenizer_path, all_loads, capsys, monkeypatch
):
    def run(*_):
        raise ModuleNotFoundError("No module named 'google.cloud.dataflow_v1beta3'")

    monkeypatch.setattr(job, "translate_job", run)
    with pytest.raises(DataError, match="1 of 6 checks failed"):
        build_shards(["--preflight", *remote, f"--tokenizer={tokenizer_path}"])
    printed = capsys.readouterr().out
    assert "No module named 'google.cloud.dataflow_v1beta3'" in printed
    assert "pip install '/path/to/textmill[pipelines,gcp]'" in printed


BUCKET = "--temp_location=gs://my-bucket/tmp"


def test_flags_that_dataflow_requires(monkeypatch):
    monkeypatch.delenv("CLOUDSDK_COMPUTE_REGION", raising=False)
    missing = check_flags([])
    assert missing.state == "failed"
    assert as_flags(missing.detail) == "no --project; no --region; no --temp_location"
    needed = "--project=PROJECT_ID --region=REGION --temp_location=gs://BUCKET/tmp"
    assert needed in as_flags(missing.remedy)
    monkeypatch.setenv("CLOUDSDK_COMPUTE_REGION", "us-central1")
    detail = "project my-project, region us-central1, gs://my-bucket/tmp: Dataflow checks that they"
    assert check_flags([DATAFLOW[1], BUCKET]) == Check("flags", "ok", f"{detail} exist")


@pytest.mark.parametrize(
    "flag, said",
    [
        ("--project=", "no --project"),
        ("--temp_location=/tmp/x", "Invalid GCS path (/tmp/x)"),
        ("--temp_location=gs://My_Bucket/tmp", "Invalid GCS bucket"),
        ("--staging_location=s3://my-bucket/x", "Invalid GCS path"),
    ],
)
def test_each_wrong_flag_of_dataflow_is_refused_alone(flag, said):
    check = check_flags([*DATAFLOW, BUCKET, flag])
    assert check.state == "failed" and check.remedy
    detail = as_flags(check.detail)
    assert said in detail and ";" not in detail.partition(said)[0]


def test_what_another_package_of_the_workers_may_have(
    remote, tokenizer_path, capsys, monkeypatch, tmp_path
):
    monkeypatch.setattr(job, "load_job", lambda *_: (31, ["a step does not load"]))
    flags = [*remote, f"--tokenizer={tokenizer_path}", f"--extra_package={tmp_path}/mine.tar.gz"]
    found = failures(capsys, build_shards, *flags)
    assert found.keys() == {"job"} and "mine.tar.gz" in found["job"]
    (tmp_path / "mine.tar.gz").touch()
    build_shards(["--preflight", *flags])
    assert row("not checked", "unpickling", "a step does not load") in capsys.readouterr().out
