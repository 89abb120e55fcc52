"""A hub of checkpoints and datasets on the loopback interface: what `huggingface_hub` asks of it when HF_ENDPOINT is
its address."""

import hashlib
import json
from urllib.parse import unquote, urlsplit

from huggingface_hub import constants

from loopback import Loopback


class Hub(Loopback):
    """Serves `repositories`, {id: {file: bytes}}, each of one commit, which is its branch `main` too.

    commits: {id: 40 hex digits} of some of them; `asked` has the paths of all requests; `lfs` {file: {"lfs": …}} is
    what it says of large files.
    """

    methods, protocol = ("GET", "HEAD"), "HTTP/1.1"

    def __init__(self, repositories, commits=()):
        self.repositories, self.commits, self.asked, self.lfs = repositories, dict(commits), [], {}
        super().__init__()

    def environment(self, cache):
        """What makes a process take this hub for the real one, and `cache` for where downloads lie."""
        return {
            "HF_ENDPOINT": self.address,
            "HF_HUB_CACHE": str(cache),
            "HF_HUB_OFFLINE": "0",
            "HF_HUB_DISABLE_XET": "1",
        }

    def take_over(self, monkeypatch, cache):
        """Do the same as `environment` for this process, until its test ends."""
        template = f"{self.address}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        values = {"ENDPOINT": self.address, "HUGGINGFACE_CO_URL_TEMPLATE": template, "HF_HUB_DISABLE_XET": True}
        for name, value in (values | {"HF_HUB_OFFLINE": False, "HF_HUB_CACHE": str(cache)}).items():
            monkeypatch.setattr(constants, name, value)

    def commit(self, name):
        """40 hex digits: those that it was given, or of its content."""
        if name in self.commits:
            return self.commits[name]
        digests = {file: hashlib.sha1(content).hexdigest() for file, content in self.repositories[name].items()}
        return hashlib.sha1(json.dumps(digests, sort_keys=True).encode()).hexdigest()

    def answer(self, request):
        path = unquote(urlsplit(request.path).path).strip("/")
        self.asked.append(path)
        name, content = self.find(path)
        if content is None:
            request.send_response(404)
            request.send_header("X-Error-Code", "RevisionNotFound" if name else "RepoNotFound")
            content = b""
        else:
            request.send_response(200)
            request.send_header("X-Repo-Commit", self.commit(name))
            request.send_header("ETag", f'"{hashlib.sha1(content).hexdigest()}"')
        request.send_header("Content-Length", str(len(content)))
        request.end_headers()
        if request.command == "GET":
            request.wfile.write(content)

    def find(self, path):
        """(repository, or None for an unknown one; bytes, or None where it has no such revision or file)."""
        api, path = path.startswith("api/"), path.removeprefix("api/").removeprefix("models/").removeprefix("datasets/")
        name = next((name for name in self.repositories if path.startswith(f"{name}/")), None)
        if name is None:
            return None, None
        verb, revision, *rest = path.removeprefix(f"{name}/").split("/", 2)
        commit, files = self.commit(name), self.repositories[name]
        if revision not in ("main", commit):
            return name, None
        if not api:
            return name, files.get(rest[0]) if verb == "resolve" else None
        sizes = [{"path": file, "size": len(content)} for file, content in files.items()]
        tree = [{"type": "file", "oid": hashlib.sha1(files[entry["path"]]).hexdigest()} | entry for entry in sizes]
        siblings = [
            {"rfilename": each["path"], "size": each["size"]} | self.lfs.get(each["path"], {}) for each in sizes
        ]
        info = {"id": name, "modelId": name, "sha": commit, "siblings": siblings}
        return name, json.dumps(tree if verb == "tree" else info).encode()
