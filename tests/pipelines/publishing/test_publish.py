"""Uploads with the real client to a Hub on this machine: whole, cut, killed, and refused."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from types import SimpleNamespace

import pytest
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id

import textmill as tm
from tests.tools.corpus_factory import build, write_lines
from tests.tools.hub_server import TEXT, TOKEN, HubServer
from tests.tools.places import ROOT
from tests.tools.shard_factory import write_mlm_set
from textmill.pipelines.description.run import describe_files
from textmill.pipelines.publish import main
from textmill.pipelines.publishing.options import PublishOptions
from textmill.schemas.errors import DataError, UsageError
from textmill.schemas.files.finished import Corpus, open_finished

# huggingface_hub passes a file in the way that its httpx2 discourages.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")
CARD = b"---\nlicense: cc0-1.0\n---\n# Rows\n"
REPO = "--repo=me/data"


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A Hub without repositories, whose user is logged in; the client does not pause."""
    with HubServer(tmp_path / "hub") as server:
        environment = {
            "HF_ENDPOINT": server.url,
            "HF_HUB_DISABLE_XET": "1",  # its servers have a binary protocol of their own
            "HF_HUB_OFFLINE": "0",
            "HF_TOKEN": TOKEN,
            "HF_HOME": str(tmp_path / "home"),
        }
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        # huggingface_hub has read the environment when it was imported.
        constants = "huggingface_hub.constants"
        monkeypatch.setattr(f"{constants}.ENDPOINT", server.url)
        monkeypatch.setattr(f"{constants}.HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr(f"{constants}.HF_HUB_OFFLINE", False)
        monkeypatch.setattr(f"{constants}.HF_TOKEN_PATH", str(tmp_path / "home" / "token"))
        clock = SimpleNamespace(
            sleep=lambda seconds: None, time=time.time, monotonic=time.monotonic
        )
        monkeypatch.setattr("huggingface_hub.utils._http.time", clock)
        monkeypatch.setattr("tenacity.nap.time", clock)
        yield server


@pytest.fixture
def shards(tmp_path):
    """A dataset with papers of its own."""
    directory = tmp_path / "shards"
    write_mlm_set(directory, train=60, validation=10, shards={"train": 3, "validation": 1})
    (directory / "README.md").write_bytes(CARD)
    (directory / "croissant.json").write_bytes(b"{}")
    return directory


def files_of(folder):
    """Path -> bytes of all files but Git's own and locks."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.name.startswith(".")
    }


def large(directory):
    """sha256 of the files that Git LFS stores."""
    contents = (path.read_bytes() for path in directory.iterdir() if path.suffix not in TEXT)
    return sorted(hashlib.sha256(content).hexdigest() for content in contents)


def test_a_dataset_is_uploaded_once(hub, shards, capsys):
    main([str(shards), REPO])
    assert files_of(hub.folder("main")) == files_of(shards)
    assert not hub.private
    assert sorted(hub.puts.elements()) == large(shards)
    assert hub.asked["commit"] == 2  # MANIFEST.json comes with the second
    out = capsys.readouterr().out
    assert f": {hub.url}/datasets/me/data\n" in out and out.startswith("ok: ")
    asked = hub.asked.copy()
    assert tm.publish(shards, repo="me/data") == "hf://datasets/me/data"
    assert capsys.readouterr().out == (
        "hf://datasets/me/data already has this dataset: nothing to do\n"
    )
    assert hub.asked - asked == Counter(whoami=1, read=2)


def test_corpora_branches_and_papers(hub, tmp_path, capsys):
    lines = write_lines(tmp_path / "lines.jsonl", ["One text of a corpus.", "And another text."])
    corpus = build(lines, tmp_path / "corpus").directory
    papers = tmp_path / "papers"
    papers.mkdir()
    drafts = {"README.md": CARD, "croissant.json": b"{}", "summary.md": b"draft"}
    for name, content in drafts.items():
        (papers / name).write_bytes(content)
    command = [corpus, REPO, "--private", f"--papers={papers}"]
    main(command)
    expected = files_of(tmp_path / "corpus") | drafts
    assert files_of(hub.folder("main")) == expected
    assert hub.private
    # A branch begins with the first commit, not with what main has.
    main([corpus, REPO, "--private", "--revision=second"])
    made = describe_files(corpus)
    made.pop("training_content.md")
    assert files_of(hub.folder("second")) == files_of(tmp_path / "corpus") | made
    # A draft does not replace what a person has completed.
    hub.write("second", {"README.md": b"# Complete"})
    main([corpus, REPO, "--private", "--revision=second"])
    assert files_of(hub.folder("second"))["README.md"] == b"# Complete"
    assert files_of(hub.folder("main")) == expected
    # A card that was changed here replaces that of the repository, whose other files stay.
    hub.write("main", {"plot.png": b"\x89PNG"})
    (papers / "README.md").write_bytes(CARD + b"More.")
    capsys.readouterr()
    main(command)
    assert capsys.readouterr().out.startswith("ok: 1 file, 37 bytes, ")
    expected |= {"README.md": CARD + b"More.", "plot.png": b"\x89PNG"}
    assert files_of(hub.folder("main")) == expected
    assert open_finished(Corpus, str(hub.folder("main"))).stats.total().documents == 2


def test_a_dry_run_lists_and_changes_nothing(hub, shards, tmp_path, capsys):
    def run(*flags):
        main([str(shards), REPO, "--dry_run", *flags])
        return capsys.readouterr().out.splitlines()

    names = sorted(path.name for path in shards.iterdir())
    first = run("--private", "--revision=next")
    assert first[:3] == [
        "create  private repository me/data",
        "create  branch next",
        f"verify  {shards}",
    ]
    assert sorted(line.split()[1] for line in first[3:-1]) == names
    assert {line.split()[0] for line in first[3:-1]} == {"upload"}
    assert first[-1].startswith(f"dry run: {len(names)} files to upload, ")
    assert first[-1].endswith("; 0 are in hf://datasets/me/data@next")
    assert not hub.commits
    hub.create()
    hub.write("main", {"old.parquet": b"old", "schema.json": (shards / "schema.json").read_bytes()})
    with pytest.raises(UsageError, match="has other content .old.parquet.: give another --repo"):
        run()
    again = run("--overwrite")
    assert again[:2] == [f"verify  {shards}", "delete  old.parquet"]
    assert sorted(line.split()[1] for line in again[2:-1]) == sorted({*names} - {"schema.json"})
    assert again[-1].endswith("; 1 are in hf://datasets/me/data")
    assert len(hub.commits["main"]) == 2


def test_other_content_is_replaced_only_on_request(hub, shards, tmp_path, capsys):
    main([str(shards), REPO])
    kept = {"LICENSE": b"CC0", "notes.bin": b"notes"}
    hub.write("main", kept)
    other = tmp_path / "other"
    write_mlm_set(other, train=30, validation=10, shards={"train": 1, "validation": 1})
    before = files_of(hub.folder("main"))
    with pytest.raises(UsageError) as caught:
        main([str(other), REPO])
    assert str(caught.value) == (
        "hf://datasets/me/data has other content (a different MANIFEST.json): give another "
        "--repo or --revision, or replace it with --overwrite"
    )
    assert files_of(hub.folder("main")) == before
    main([str(other), REPO, "--overwrite"])
    made = describe_files(str(other))
    assert b"A person must add" in made["README.md"]
    left = {name: made[name] for name in ("README.md", "croissant.json")} | {"LICENSE": b"CC0"}
    assert files_of(hub.folder("main")) == files_of(other) | left
    # What is damaged in the repository is mended without the flag.
    hub.write("main", {"schema.json": b"{}"}, deleted=("train-00000-of-00001.tfrecord",))
    main([str(other), REPO])
    assert files_of(hub.folder("main")) == files_of(other) | left


def test_an_upload_that_was_cut_goes_on(hub, shards, monkeypatch):
    monkeypatch.setattr("textmill.pipelines.publishing.upload._BATCH_FILES", 2)
    hub.puts_left = 5
    with pytest.raises(DataError, match=r"not reachable .*the same command again: it uploads only"):
        main([str(shards), REPO])
    assert hub.commits["main"][1:] and "MANIFEST.json" not in files_of(hub.folder("main"))
    first = hub.puts.copy()
    assert sum(first.values()) == 5
    hub.puts_left = float("inf")
    main([str(shards), REPO])
    assert files_of(hub.folder("main")) == files_of(shards)
    assert sorted(hub.puts.elements()) == large(shards)  # none was sent twice


def test_a_commit_that_fails_is_repeated(hub, shards):
    """The client repeats uploads, but no commits: of a busy Hub, or after another's commit."""
    hub.refused_once = [503, 412, 409]
    main([str(shards), REPO])
    assert files_of(hub.folder("main")) == files_of(shards)


@pytest.mark.parametrize(
    ("refused", "message"),
    [
        ({"whoami": 401}, "rejects the token .401.*: run `hf auth login` again, or set HF_TOKEN"),
        ({"create": 403}, "the token may not do this .403: not today.: use .* repositories of me"),
        ({"create": 404}, "no such owner, repository or branch, or .* .404: .*: check --repo and"),
        ({"commit": 503}, "the Hub did not finish a request .503.*: run the same command again"),
        ({"batch": 507}, "the Hub did not finish a request .507"),
        ({"preupload": 402}, "the Hub rejects a request .402: not today.$"),
    ],
)
def test_what_the_hub_refuses_is_one_line(hub, shards, refused, message):
    hub.refused = refused
    with pytest.raises(DataError, match=message) as caught:
        main([str(shards), REPO])
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("hf://datasets/me/data: ")


def test_the_hub_checks_the_card(hub, shards, capsys):
    (shards / "README.md").write_text("---\n- list\n")
    with pytest.raises(
        DataError, match=r"400: .*\): Invalid metadata in README.md. - metadata is no"
    ):
        main([str(shards), REPO])
    (shards / "README.md").write_text("# Rows\n")
    main([str(shards), REPO])
    assert (
        "note: Warnings while validating metadata in README.md: - none\n" in capsys.readouterr().err
    )
    (shards / "README.md").unlink()
    main([str(shards), REPO, "--revision=draft"])
    note = "note: README.md is a draft, in which a person must add statements\n"
    assert note in capsys.readouterr().err


def test_a_dataset_in_a_bucket(hub, shards, gs_store):
    main([gs_store.upload(shards, "set"), REPO])
    assert files_of(hub.folder("main")) == files_of(shards)


def test_a_missing_token_a_reading_one_and_no_network(hub, shards, monkeypatch):
    hub.role = "read"
    with pytest.raises(DataError, match="the token of me may only read: create a token with write"):
        main([str(shards), REPO])
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(UsageError, match="no token for the Hugging Face Hub: run `hf auth login`"):
        main([str(shards), REPO])
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(
        DataError, match=r"127.0.0.1:9 is not reachable \([^:]*refused\): check the netw"
    ):
        main([str(shards), REPO])


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--repo=data"], "--repo=data: give USER/NAME of a dataset repository; a name has"),
        (["--repo=me/a--b"], "--repo=me/a--b: give USER/NAME of a .*, no -- or \\.\\.,"),
        ([f"--repo=me/{'a' * 97}"], "at most 96 ASCII letters"),
        (["--repo=me/data."], "no - or \\. at either end"),
        (["--repo=me/data.git"], "does not end with .git"),
        (["--repo=hf://datasets/me/data"], "dataset repository: --repo=me/data$"),
        (["--repo=https://huggingface.co/datasets/me/data"], "repository: --repo=me/data$"),
        ([REPO, f"--revision={'a' * 40}"], "--revision=a+: give the name of a branch"),
        ([REPO, "--papers=/none"], "--papers=/none: there is no such directory"),
    ],
)
def test_wrong_flags(hub, shards, flags, message):
    with pytest.raises(UsageError, match=message):
        main([str(shards), *flags])
    assert not hub.asked


@pytest.mark.parametrize("name", ["me/a", "Org-1/x_y.z", f"me/{'a' * 96}", "_a/b_", "a/b.gitx"])
def test_names_of_the_hub_are_taken(name):
    validate_repo_id(name)
    assert PublishOptions("shards", repo=name).repo == name


@pytest.mark.parametrize("name", ["me/a--b", "me/a..b", "me/.a", "me/a-", "mé/a", "me/a.git"])
def test_names_that_the_client_refuses_are_refused_before(name):
    with pytest.raises(HFValidationError):
        validate_repo_id(name)
    with pytest.raises(UsageError, match="a name has at most 96"):
        PublishOptions("shards", repo=name)


def test_a_public_repository_is_not_taken_for_a_private_one(hub, shards):
    hub.create()
    with pytest.raises(UsageError, match="--private: http.*/datasets/me/data is public: change"):
        main([str(shards), REPO, "--private"])


def test_damage_is_found_before_and_after(hub, shards, monkeypatch):
    shard = shards / "train-00001-of-00003.tfrecord"
    content = shard.read_bytes()
    shard.write_bytes(content[:-1] + b"x")
    with pytest.raises(DataError, match="train-00001-of-00003.tfrecord"):
        main([str(shards), REPO])
    assert not hub.commits
    shard.write_bytes(content)
    honest = hub.write

    def write(branch, files, deleted=()):
        spoilt = {name: bytes([0]) * len(b) if b == content else b for name, b in files.items()}
        return honest(branch, spoilt, deleted)

    monkeypatch.setattr(hub, "write", write)
    with pytest.raises(
        DataError, match="not as it was uploaded: train-00001-of-00003.tfrecord has sha256"
    ):
        main([str(shards), REPO])


RUN = """
import sys
from textmill.pipelines.publishing import upload
from textmill.pipelines.description.run import describe_files
from textmill.pipelines.publish import main
from textmill.schemas.commands.entry import run_entry
upload._BATCH_FILES = 1
run_entry(main)
"""


@pytest.mark.slow
def test_a_killed_run_goes_on_and_the_set_is_read(hub, shards, tmp_path):
    command = [sys.executable, "-W", "ignore", "-c", RUN, str(shards), REPO]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE)
    while sum(hub.puts.values()) < 4:
        assert process.poll() is None
        time.sleep(0.001)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert "MANIFEST.json" not in files_of(hub.folder("main"))
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stdout[:4]) == (0, "ok: "), done.stderr
    assert set(hub.puts) == {*large(shards)}
    assert sum(hub.puts.values()) <= len(large(shards)) + 1  # but one that was on its way
    read = f"""
from textmill import ShardSet
for place in ("hf://datasets/me/data", {str(shards)!r}):
    shards = ShardSet(place, cache_dir={str(tmp_path / "cache")!r})
    batches = shards.batches("train", batch_size=10, seed=1, stop_step=6)
    print([batch["input_ids"].tolist() for batch in batches])
"""
    done = subprocess.run(
        [sys.executable, "-c", read], cwd=ROOT, capture_output=True, text=True, timeout=100
    )
    streamed, local = done.stdout.splitlines()
    assert streamed == local and len(json.loads(local)) == 6
    for words, code in (([str(shards), REPO], 0), (["none", REPO], 1), ([str(shards)], 2)):
        command = [sys.executable, "-W", "ignore", "-m", "pipelines.publish", *words]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100)
        assert done.returncode == code, done.stderr
        assert done.stderr.count("\n") <= 1
