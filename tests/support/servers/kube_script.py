"""An API server that answers as a test scripts it: for what no real one says on demand, such as half an event or nothing at all."""

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

from tests.support.servers.http_server import QuietHandler, serve
from tests.support.waiting import PATIENCE_SECONDS


@dataclass
class Call:
    """A request under way, and what may be written into its answer."""

    handler: QuietHandler
    path: str
    query: dict[str, str]
    token: str  # that it came with
    closing: threading.Event  # set when the server ends
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def is_watch(self) -> bool:
        return self.query.get("watch") == "1"

    def answer(self, status: int, body: Any, **headers: str) -> None:
        """A whole answer in JSON."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.handler.answer(status, content, headers.pop("Content_Type", "application/json"), **headers)

    def start(self) -> None:
        """The head of a watch whose end is the end of the connection."""
        self.handler.close_connection = True
        self.handler.send_response(200)
        self.handler.send_header("Content-Type", "application/json")
        self.handler.end_headers()
        self.handler.wfile.flush()

    def tell(self, kind: str, found: Any) -> None:
        """One event."""
        self.write(json.dumps({"type": kind, "object": found}).encode() + b"\n")

    def write(self, content: bytes) -> None:
        self.handler.wfile.write(content)
        self.handler.wfile.flush()

    def stay(self) -> None:
        """Keeps the connection open until the server ends."""
        self.closing.wait(PATIENCE_SECONDS)


Answer = Callable[[Call], None]


# a version that no script gets to
FAR_ON = "1000000"


class KubeScript:
    """`with KubeScript(first, second) as server:` each request has the next answer, from the last on always that one.

    A request for a single item asks how far the server is. It is no part of the script: it gets the version `at`, and stands in `checks`.
    """

    def __init__(self, *answers: Answer, at: str = FAR_ON) -> None:
        self.at = at
        self.checks: list[Call] = []
        self._answers = list(answers)
        self._guard = threading.Lock()
        self._closing = threading.Event()
        self.calls: list[Call] = []

    def __enter__(self) -> Self:
        script = self

        class Handler(QuietHandler):
            def do_GET(self) -> None:
                address = urlsplit(self.path)
                token = self.headers.get("Authorization", "").removeprefix("Bearer ")
                headers = {name.lower(): text for name, text in self.headers.items()}
                query = dict(parse_qsl(address.query, keep_blank_values=True))
                call = Call(self, address.path, query, token, script._closing, headers)
                if query.get("limit") == "1":
                    script.checks.append(call)
                    call.answer(200, {"metadata": {"resourceVersion": script.at}})
                    return
                with script._guard:
                    script.calls.append(call)
                    answer = script._answers[min(len(script.calls), len(script._answers)) - 1]
                try:
                    answer(call)
                except OSError:
                    self.close_connection = True

        self._serving = serve(Handler)
        self.url = self._serving.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self._closing.set()
        self._serving.__exit__(None, None, None)

    @property
    def watches(self) -> list[Call]:
        with self._guard:
            return [call for call in self.calls if call.is_watch]


def page(pods: Sequence[Any], version: str = "10", token: str = "") -> Answer:
    """One page of a list. `token`: for the next page."""
    metadata = {"resourceVersion": version, **({"continue": token} if token else {})}
    return lambda call: call.answer(200, {"kind": "PodList", "metadata": metadata, "items": list(pods)})


def refusal(code: int, message: str, **headers: str) -> Answer:
    """A refusal as the API server words it."""
    return lambda call: call.answer(
        code, {"kind": "Status", "status": "Failure", "message": message, "code": code}, **headers
    )


def events(*told: tuple[str, Any], stays: bool = True) -> Answer:
    """A watch that tells these and stays open, or ends."""

    def answer(call: Call) -> None:
        call.start()
        for kind, found in told:
            call.tell(kind, found)
        if stays:
            call.stay()

    return answer


def bookmark(version: str) -> tuple[str, Any]:
    return "BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": version}}


def write_kubeconfig(folder: Path, url: str, token: str = "t-1", name: str = "kubeconfig") -> Path:
    """A kubeconfig for a server without TLS. Its token is in a file `token` beside it, which may be rotated."""
    (folder / "token").write_text(token)
    path = folder / name
    path.write_text(
        f"""apiVersion: v1
kind: Config
current-context: here
clusters: [{{name: here, cluster: {{server: "{url}"}}}}]
users: [{{name: user, user: {{tokenFile: "{folder / "token"}"}}}}]
contexts: [{{name: here, context: {{cluster: here, user: user}}}}]
"""
    )
    return path
