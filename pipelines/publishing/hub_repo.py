"""A dataset repository of the Hugging Face Hub: its files, and commits to one of its branches."""

import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

import huggingface_hub
import huggingface_hub.errors as hub_errors
from huggingface_hub import CommitOperationAdd, CommitOperationDelete
from huggingface_hub.hf_api import HfApi, RepoFile

from textmill.schemas.commands.terminal import say
from textmill.schemas.errors import DataError, UsageError, flag, one_line
from textmill.schemas.version import VERSION

T = TypeVar("T")
_KIND = "dataset"
_AGAIN = "run the same command again: it uploads only what is missing"


_TEMPORARY = (408, 409, 412, 425, 429)  # the branch has moved, a limit of requests


class HubBusyError(DataError):
    """The same request may succeed later, or once `head` was refreshed."""


class StoredFile(NamedTuple):
    """A file of a repository.

    Attributes:
      bytes: its size.
      sha256: of a large file; None for a file that is in Git itself.
      git_hash: its hash in Git, which is that of a pointer for a large file.
    """

    bytes: int
    sha256: str | None
    git_hash: str


class HubRepo:
    """A branch of a dataset repository, which need not exist yet.

    Attributes:
      url: its address for people.
      place: its address for readers, and for messages: hf://datasets/USER/NAME.
      exists: whether there is a repository.
      is_private: whether only its owners see it; False if it does not exist.
      head: the newest commit of the branch; None if there is no branch.
    """

    def __init__(self, name: str, revision: str | None):
        """Asks the Hub for the repository.

        Args:
          name: USER/NAME.
          revision: the branch; None for main.

        Raises:
          UsageError: there is no token.
          DataError: the Hub rejects the token or the request, or is not reachable.
        """
        token = huggingface_hub.get_token()
        if token is None:
            raise UsageError(
                "there is no token for the Hugging Face Hub: run `hf auth login`, or set HF_TOKEN "
                "to a token with write access"
            )
        if not sys.stderr.isatty():  # a log of bars is long
            huggingface_hub.utils.disable_progress_bars()
        self._name, self._revision = name, revision
        self._api = HfApi(token=token, library_name="textmill", library_version=VERSION)
        at = f"@{revision}" if revision else ""
        self.place = f"hf://datasets/{name}{at}"
        self.url = f"{self._api.endpoint}/datasets/{name}"
        if revision:
            self.url += f"/tree/{revision}"
        user = self._ask(self._api.whoami)
        if (user.get("auth") or {}).get("accessToken", {}).get("role") == "read":
            raise DataError(
                f"{self.place}: the token of {user['name']} may only read: create a token with "
                "write access, and set HF_TOKEN or run `hf auth login`"
            )
        self.exists, self.is_private, self.head = False, False, None
        self.refresh()

    def refresh(self) -> None:
        """Requests the state of the repository and the newest commit of the branch."""
        found = self._find(None)
        self.exists, self.is_private = found is not None, bool(found and found.private)
        if self._revision and found:
            found = self._find(self._revision)
        self.head = found.sha if found else None

    def _find(self, revision: str | None) -> Any:
        def ask() -> Any:
            try:
                return self._api.repo_info(self._name, repo_type=_KIND, revision=revision)
            except (hub_errors.RepositoryNotFoundError, hub_errors.RevisionNotFoundError) as error:
                if error.response.status_code == 403:  # a gated repository
                    raise
                return None

        return self._ask(ask)

    def create(self, *, private: bool) -> None:
        """Creates the repository and the branch where they are missing."""
        api, name = self._api, self._name
        if not self.exists:
            # None: as the owner's settings say
            self._ask(
                lambda: api.create_repo(
                    name, repo_type=_KIND, exist_ok=True, private=private or None
                )
            )
            self.refresh()
        if self.head is None:
            branch = str(self._revision)

            def branch_off() -> None:
                first = api.list_repo_commits(name, repo_type=_KIND)[-1].commit_id
                api.create_branch(
                    name, repo_type=_KIND, branch=branch, revision=first, exist_ok=True
                )

            self._ask(branch_off)
            self.refresh()

    def files(self) -> dict[str, StoredFile]:
        """The files of the branch, by their paths; none if there is no branch."""
        if self.head is None:
            return {}

        def ask() -> dict[str, StoredFile]:
            listed = self._api.list_repo_tree(
                self._name, repo_type=_KIND, revision=self._revision, recursive=True
            )
            return {
                entry.path: StoredFile(
                    entry.size, entry.lfs.sha256 if entry.lfs else None, entry.blob_id
                )
                for entry in listed
                if isinstance(entry, RepoFile)
            }

        return self._ask(ask)

    def commit(
        self, message: str, *, add: Mapping[str, str | bytes] = {}, delete: Iterable[str] = ()
    ) -> None:
        """Uploads and deletes files in one commit onto `head`, which moves.

        Args:
          message: of the commit.
          add: path in the repository -> local path or bytes.
          delete: paths in the repository.

        Raises:
          HubBusyError: the branch has another head by now, or the Hub is not reachable.
          DataError: as `__init__`.
        """

        def ask() -> str:
            adds = [CommitOperationAdd(path, source) for path, source in add.items()]
            done = self._api.create_commit(
                self._name,
                [*(CommitOperationDelete(path, is_folder=False) for path in delete), *adds],
                commit_message=message,
                repo_type=_KIND,
                revision=self._revision,
                parent_commit=self.head,
            )
            return done.oid

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            self.head = self._ask(ask)
        for each in caught:
            if issubclass(each.category, UserWarning):  # of the card's metadata
                say(f"note: {' '.join(str(each.message).split())}", sys.stderr)

    def _ask(self, request: Callable[[], T]) -> T:
        try:
            return request()
        except Exception as error:  # whatever its transports raise
            raise self._describe(error) from error

    def _describe(self, error: Exception) -> DataError:
        """The error for a user, by the status of the Hub's answer."""
        answer = _answer_of(error)
        reason = one_line(
            Exception(": ".join(dict.fromkeys(str(each).rstrip(".") for each in _chain(error))))
        )
        if answer is None:
            if _is_of_network(error):
                return HubBusyError(
                    f"{self.place}: {self._api.endpoint} is not reachable ({reason:.300}): "
                    f"check the network, HF_ENDPOINT and HF_HUB_OFFLINE, and {_AGAIN}"
                )
            return DataError(f"{self.place}: huggingface_hub rejects the request: {reason:.500}")
        status = answer.response.status_code
        words = f" ({status}: {answer.server_message})" if answer.server_message else f" ({status})"
        if status == 401:
            remedy = "run `hf auth login` again, or set HF_TOKEN to a valid token"
            return DataError(f"{self.place}: the Hub rejects the token{words}: {remedy}")
        if status == 403:
            owner = self._name.partition("/")[0]
            return DataError(
                f"{self.place}: the token may not do this{words}: use a token with write access to "
                f"repositories of {owner}, or another {flag('repo')}"
            )
        if status == 404:
            return DataError(
                f"{self.place}: the Hub has no such owner, repository or branch, or the token may "
                f"not see it{words}: check {flag('repo')} and {flag('revision')}"
            )
        if status in _TEMPORARY or status >= 500:
            return HubBusyError(f"{self.place}: the Hub did not finish a request{words}: {_AGAIN}")
        reason = "" if answer is error else f": {one_line(error):.300}"
        return DataError(f"{self.place}: the Hub rejects a request{words}{reason}")


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def _answer_of(error: Exception) -> hub_errors.HfHubHTTPError | None:
    """The answer of the Hub that led to an error."""
    found = (each for each in _chain(error) if isinstance(each, hub_errors.HfHubHTTPError))
    return next(found, None)


def _is_of_network(error: Exception) -> bool:
    """Whether a connection failed; huggingface_hub has had httpx and httpx2 for them."""
    return any(
        isinstance(each, OSError) or type(each).__module__.startswith("httpx")
        for each in _chain(error)
    )
