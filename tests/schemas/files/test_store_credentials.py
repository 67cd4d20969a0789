"""Credentials that cannot be renewed are reported soon and clearly; nothing is read without."""

import json
import time
from concurrent.futures import ThreadPoolExecutor

import fsspec.config
import pytest
import s3fs
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.tools.fault_proxy import FaultProxy
from tests.tools.python_process import run_python
from textmill.schemas.errors import DataError
from textmill.schemas.files import object_store
from textmill.schemas.files import store as stores
from textmill.schemas.files.object_store import tell_if_slow

GIVEN = "GOOGLE_APPLICATION_CREDENTIALS"
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:botocore"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:aiobotocore"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(autouse=True)
def hasty(monkeypatch):
    """Seconds are tenths here, and nothing is known of credentials from before."""
    monkeypatch.setattr(object_store, "SILENT_SECONDS", 0.2)
    monkeypatch.setattr(object_store, "RENEWAL_SECONDS", 1.5)
    monkeypatch.setattr(object_store, "ANSWER_SECONDS", 3.0)
    monkeypatch.setattr(object_store, "PATIENCE_SECONDS", 2.0)
    monkeypatch.setattr(object_store, "_last_told", -60.0)
    object_store._load_google.cache_clear()
    s3fs.S3FileSystem.clear_instance_cache()


@pytest.fixture
def tokens():
    """A token service on loopback: a proxy with nothing behind it, which does as its rules say."""
    with FaultProxy(1) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def key():
    """A private key of RSA, as PEM."""
    made = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    kind = serialization.PrivateFormat.PKCS8
    encoding = serialization.Encoding.PEM
    return made.private_bytes(encoding, kind, serialization.NoEncryption()).decode()


@pytest.fixture
def service_account(key, tmp_path, tokens):
    """The file of a service account whose tokens come from a port of this machine."""
    path = tmp_path / "account.json"
    account = {
        "type": "service_account",
        "private_key": key,
        "client_email": "a@b.c",
        "token_uri": f"http://127.0.0.1:{tokens.port}/token",
    }
    path.write_text(json.dumps(account))
    return str(path)


FAULTS = {
    "refused": lambda tokens: tokens.answer(400, "POST", "/token", times=None),
    "silent": lambda tokens: tokens.hang("POST", "/token"),
    "unreachable": lambda tokens: tokens.close(),
}


# Without a limit of ours, Google's library waits for two minutes; threads that waited one after
# another would take 60 s.
@pytest.mark.timeout(50)
@pytest.mark.parametrize("fault", FAULTS)
def test_what_cannot_be_renewed_is_told_and_ended(
    fault, gs_store, tokens, service_account, monkeypatch, capsys
):
    gs_store.put("x/x", b"open to all")
    monkeypatch.setenv(GIVEN, service_account)
    FAULTS[fault](tokens)

    def read(_):
        with pytest.raises(DataError) as caught:
            stores.read(gs_store.url("x/x"))
        return str(caught.value)

    readers = 40 if fault == "silent" else 1
    with ThreadPoolExecutor(readers) as pool:
        [message] = set(pool.map(read, range(readers)))
    assert gs_store.url("x") in message and "log in again" in message
    origin = f"credentials of {GIVEN}={service_account}"
    assert f"{origin} cannot be loaded or renewed" in message
    assert gs_store.proxy.requests == []  # neither with nor without credentials
    err = capsys.readouterr().err
    assert fault == "refused" or f"waiting for {origin}" in err


@pytest.mark.parametrize(
    ("place", "content", "message"),
    [
        ("given", None, "not found"),
        ("given", "{", "is not a valid json file"),
        ("given", "{}", "not have a valid type"),
        ("gcloud", "{", "is not a valid json file"),
        ("gcloud", "{}", "not have a valid type"),
    ],
)
def test_a_file_that_is_none_is_not_passed_over(
    place, content, message, gs_store, tmp_path, monkeypatch
):
    gs_store.put("x/x", b"open to all")
    path = tmp_path / "application_default_credentials.json"
    if content is not None:
        path.write_text(content)
    monkeypatch.setenv(GIVEN, str(path) if place == "given" else "")
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    with pytest.raises(DataError, match=message) as caught:
        stores.read(gs_store.url("x/x"))
    assert str(path) in str(caught.value)
    assert gs_store.proxy.requests == []


@pytest.mark.parametrize("asked", [True, False])
def test_without_credentials_where_asked_for_or_where_there_are_none(
    asked, gs_store, tmp_path, monkeypatch
):
    gs_store.put("x/x", b"open to all")
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setenv(GIVEN, str(tmp_path / "none") if asked else "")
    if asked:
        monkeypatch.setitem(fsspec.config.conf, "gs", {"token": "anon"})  # by FSSPEC_GS_TOKEN
    assert stores.read(gs_store.url("x/x")) == b"open to all"


def test_a_token_service_that_comes_back_is_asked_again(
    gs_store, tokens, service_account, monkeypatch
):
    gs_store.put("x/x", b"content")
    monkeypatch.setenv(GIVEN, service_account)
    monkeypatch.setattr(object_store, "RENEWAL_SECONDS", 20.0)
    rule = tokens.cut_download("POST", "/token", after=None, times=2)
    answer = b'{"access_token": "t", "expires_in": 3600, "token_type": "Bearer"}'
    tokens.answer(200, "POST", "/token", content=answer)
    url = gs_store.url("x/x")
    assert stores.read(url) == stores.read(url) == b"content" and rule.hits == 2
    assert tokens.count("POST", "/token") == 3  # one token for both
    assert object_store._google_credentials(url).token == "t"


@pytest.mark.timeout(90)
@pytest.mark.parametrize(
    "fault",
    ["refused", *(pytest.param(f, marks=pytest.mark.slow) for f in ("silent", "process"))],
)
def test_credentials_of_aws(fault, s3_store, tokens, tmp_path, monkeypatch, capsys):
    s3_store.put("x/x", b"content")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    (tmp_path / "file").write_text("[default]\ncredential_process = sleep 99\n")
    if fault == "process":
        monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "file"))
    else:
        if fault == "refused":
            tokens.answer(403, "POST", "/", times=None)
        else:
            tokens.hang("POST", "/")
        monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/r")
        monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "file"))
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", f"http://127.0.0.1:{tokens.port}")
    url = s3_store.url("x/x")
    with pytest.raises(DataError, match=f"{url} cannot be read: .*credentials"):
        stores.read(url)
    assert fault == "refused" or f"waiting for {url}: no answer yet" in capsys.readouterr().err
    assert s3_store.proxy.requests == []


def test_what_is_slow_is_said_once(capsys):
    for _ in range(2):
        with tell_if_slow("this"):
            time.sleep(0.4)
    with tell_if_slow("that"):
        pass
    assert capsys.readouterr().err == "waiting for this, 0 s\n"


@pytest.mark.parametrize(
    ("kind", "status"), [("gs", 400), ("gs", 401), ("gs", 403), ("s3", 400), ("s3", 403)]
)
def test_what_the_store_itself_refuses_is_told_at_once(kind, status, request):
    store = request.getfixturevalue(f"{kind}_store")
    store.put("x/x", b"content")
    rule = store.proxy.answer(status, "GET", "x/x", times=None)
    with pytest.raises(DataError, match="x/x cannot be read: .*credentials"):
        stores.read(store.url("x/x"))
    assert rule.hits <= 5  # of the libraries themselves; ours would be dozens in a minute


@pytest.mark.parametrize(("told", "name"), [("", "GCSFileSystem"), ("true", "Extended")])
def test_gcsfs_asks_nothing_by_grpc_unless_told_to(told, name, monkeypatch):
    """Asking for the kind of a bucket takes a minute where gRPC gets no answer."""
    monkeypatch.delenv("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", raising=False)
    if told:
        monkeypatch.setenv("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", told)
    code = "import gcsfs; from textmill.schemas.files.object_store import package_of as f; print(f('gs://b/x'))"
    found = run_python("-c", code)
    assert f".{name}" in found.stdout, found.stderr
