"""A Hugging Face Hub on loopback that takes uploads: it speaks what huggingface_hub asks.

with HubServer(directory) as hub:   # with HF_ENDPOINT=hub.url
    hub.folder("main")              # the files of hf://datasets/me/data, once it was created

Branches are folders, in which any program may look. Files other than text are Git LFS's, as on the
Hub, where a file of a commit is stored only once its bytes were put.
"""

import base64
import hashlib
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from tests.tools.range_server import RangeServer, Request

TEXT = (".json", ".md", ".txt", ".jsonl", ".gitattributes")
TOKEN = "hf_of_me"
REPO = "api/datasets/me/data"


class HubServer(RangeServer):
    """The Hub of a user `me`, whose token is TOKEN, with room for the repository me/data.

    Attributes:
      commits: the commits of each branch, the newest last; none if there is no repository.
      private: whether the repository is.
      role: what the token may do: write or read.
      objects: the bytes of files of Git LFS, by sha256.
      puts: number of uploads of each sha256 that were finished.
      asked: number of requests of each kind, such as "commit".
      refused: kind of request -> the status that answers it.
      refused_once: statuses that answer the next commits.
      puts_left: so many more uploads are taken, then connections are cut halfway.
    """

    def __init__(self, directory: Path):
        super().__init__(directory)
        self.commits: dict[str, list[str]] = {}
        self.private, self.role = False, "write"
        self.objects: dict[str, bytes] = {}
        self.puts, self.asked = Counter[str](), Counter[str]()
        self.refused: dict[str, int] = {}
        self.refused_once: list[int] = []
        self.puts_left: float = float("inf")

    def folder(self, revision: str) -> Path:
        """The files of a branch."""
        return self.directory / revision

    def create(self, *, private: bool = False) -> None:
        """Creates the repository with Git's own file, as the Hub does."""
        self.private = private
        self.folder("main").mkdir(parents=True)
        self.write("main", {".gitattributes": b"*.tfrecord filter=lfs\n"})

    def write(self, branch: str, files: dict[str, bytes], deleted: tuple[str, ...] = ()) -> str:
        """Makes a commit; returns its hash."""
        for name in deleted:
            (self.folder(branch) / name).unlink()
        for name, content in files.items():
            path = self.folder(branch) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        commits = self.commits.setdefault(branch, [])
        commits.append(hashlib.sha1(f"{branch} {len(commits)}".encode()).hexdigest())
        return commits[-1]


class _HubRequest(Request):
    server: HubServer
    body = b""

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path).strip("/")
        if not path.startswith("api/") or not self._is_refused(path, "read"):
            super().do_GET()

    def describe(self, path: str) -> object:
        server = self.server
        if path == "api/whoami-v2":
            return {"name": "me", "auth": {"accessToken": {"role": server.role}}}
        if path.startswith(f"{REPO}/commits/"):
            return [
                {"id": commit, "authors": [], "date": "2026-11-29T00:00:00.000Z"}
                | {"title": "", "message": ""}
                for commit in reversed(server.commits["main"])
            ]
        if path.startswith(f"{REPO}/tree/"):
            return super().describe(path)
        branch = path.partition("/revision/")[2] or "main"
        return {"id": "me/data", "sha": server.commits[branch][-1], "private": server.private}

    def entry(self, path: Path, name: str) -> dict[str, object]:
        found = super().entry(path, name)
        if path.is_file():
            content = path.read_bytes()
            found["oid"] = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
            if not name.endswith(TEXT):
                oid = hashlib.sha256(content).hexdigest()
                found |= {"oid": "0" * 40}  # of the pointer
                found["lfs"] = {"oid": oid, "size": len(content), "pointerSize": 130}
        return found

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        self.body = self.rfile.read(length)
        path = unquote(urlsplit(self.path).path).strip("/")
        verbs = "create|validate-yaml|preupload|batch|verify|commit|branch|paths-info"
        found = re.search(f"(?:/|^)({verbs})(?:/(.+))?$", path)
        assert found, path
        verb, branch = found.groups()
        if not self._is_refused(path, verb):
            getattr(self, "_" + verb.replace("-", "_"))(branch)

    def do_PUT(self) -> None:
        oid, length = self.path.rpartition("/")[2], int(self.headers["Content-Length"])
        if self.server.puts_left <= 0:
            self.rfile.read(length // 2)
            self.close_connection = True
            return
        self.server.puts_left -= 1
        content = self.rfile.read(length)
        assert hashlib.sha256(content).hexdigest() == oid
        self.server.objects[oid] = content
        self.server.puts[oid] += 1
        self.answer({})

    def _is_refused(self, path: str, verb: str) -> bool:
        """Answers a request that the Hub would refuse."""
        server, verb = self.server, "whoami" if path == "api/whoami-v2" else verb
        server.asked[verb] += 1
        branch = path.partition("/revision/")[2] or "main"
        if verb in server.refused:
            self._refuse(server.refused[verb], "not today")
        elif verb == "commit" and server.refused_once:
            self._refuse(server.refused_once.pop(), "not now")
        elif self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._refuse(401, "Invalid credentials in Authorization header")
        elif path.startswith(REPO) and not server.commits:
            self._refuse(404, "Repository not found", "RepoNotFound")
        elif "/revision/" in path and branch not in server.commits:
            self._refuse(404, "Invalid rev id", "RevisionNotFound")
        else:
            return False
        return True

    def _refuse(self, status: int, message: str, code: str = "") -> None:
        content = json.dumps({"error": message}).encode()
        self.send_response_only(status)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("X-Error-Message", message)
        if code:
            self.send_header("X-Error-Code", code)
        self.end_headers()
        self.wfile.write(content)

    def _json(self) -> Any:
        return json.loads(self.body)

    def _create(self, _: str) -> None:
        asked = self._json()
        assert (asked["organization"], asked["name"], asked["type"]) == ("me", "data", "dataset")
        self.server.create(private=asked.get("visibility") == "private")
        self.answer({"url": f"{self.server.url}/datasets/me/data"})

    def _branch(self, branch: str) -> None:
        assert self._json()["startingPoint"] == self.server.commits["main"][0]
        self.server.folder(branch).mkdir(parents=True)
        first = {".gitattributes": (self.server.folder("main") / ".gitattributes").read_bytes()}
        self.server.write(branch, first)
        self.answer({})

    def _validate_yaml(self, _: str) -> None:
        content = self._json()["content"]
        if content.startswith("---\n- "):
            self.answer({"errors": [{"message": "metadata is not a mapping"}]}, 400)
        else:
            has_metadata = content.startswith("---\n")
            self.answer({"warnings": [] if has_metadata else [{"message": "none"}]})

    def _preupload(self, branch: str) -> None:
        files = [
            {
                "path": file["path"],
                "uploadMode": "regular" if file["path"].endswith(TEXT) else "lfs",
                "shouldIgnore": False,
            }
            for file in self._json()["files"]
        ]
        self.answer({"files": files})

    def _batch(self, _: str) -> None:
        objects = []
        for wanted in self._json()["objects"]:
            if wanted["oid"] not in self.server.objects:
                upload = {"href": f"{self.server.url}/objects/{wanted['oid']}"}
                verify = {"href": f"{self.server.url}/verify"}
                wanted["actions"] = {"upload": upload, "verify": verify}
            objects.append(wanted)
        self.answer({"objects": objects})

    def _verify(self, _: str) -> None:
        asked = self._json()
        has = len(self.server.objects.get(asked["oid"], b"")) == asked["size"]
        self.answer({}, 200 if has else 404)

    def _commit(self, branch: str) -> None:
        files, deleted = {}, []
        for line in map(json.loads, self.body.splitlines()):
            value = line["value"]
            if line["key"] == "header":
                if value.get("parentCommit") != self.server.commits[branch][-1]:
                    self._refuse(412, "A commit has happened since")
                    return
            elif line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.server.objects[value["oid"]]
            else:
                assert line["key"] == "deletedFile"
                deleted.append(value["path"])
        oid = self.server.write(branch, files, tuple(deleted))
        self.answer(
            {"commitUrl": f"{self.server.url}/datasets/me/data/commit/{oid}", "commitOid": oid}
        )


HubServer.requests = _HubRequest
