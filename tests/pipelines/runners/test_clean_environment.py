"""What an installer's failure says: of the packages, or of the network. (One that works is seen in
test_preflight.)"""

from pipelines.runners import worker_package
from pipelines.runners.preflight.job import install
from pipelines.runners.worker_package import write_package


def test_without_an_index_nothing_is_said_of_the_packages(tmp_path, monkeypatch):
    for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL"):
        monkeypatch.setenv(name, "http://127.0.0.1:1/simple")  # where nobody listens
    for name in ("UV_HTTP_RETRIES", "PIP_RETRIES"):
        monkeypatch.setenv(name, "0")
    monkeypatch.setenv("UV_NO_CACHE", "1")
    found = install(str(tmp_path / "clean"), [write_package(str(tmp_path))])
    assert (found.python, found.no_index) == ("", True)
    assert "127.0.0.1" in found.problem or "onnection" in found.problem


def test_requirements_that_contradict_each_other(tmp_path, monkeypatch):
    monkeypatch.setattr(worker_package, "requirements", lambda: ["numpy==2.4.1", "numpy==2.3.1"])
    found = install(str(tmp_path / "clean"), [write_package(str(tmp_path))])
    assert (found.python, found.no_index) == ("", False)
    assert "numpy==2.3.1" in found.problem
