"""Plays a recorded conversation with a Kubernetes API server over real HTTP.

tests/unit/discovery/conversations holds them; tests/kubernetes/record.py makes them.
"""

import json
import threading
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

from tests.support.paths import TESTS
from tests.support.servers.http_server import QuietHandler, serve

# a version that no recording gets to
FAR_ON = "1000000"
CONVERSATIONS = TESTS / "unit" / "discovery" / "conversations"


def conversation(name: str) -> list[dict[str, Any]]:
    """The exchanges of a recording: `query`, `status`, and `body` or `events`."""
    return list(json.loads((CONVERSATIONS / f"{name}.json").read_text())["exchanges"])


@dataclass(frozen=True)
class Asked:
    """A request as it came."""

    path: str
    query: dict[str, str]
    headers: dict[str, str]  # names in lower case

    @property
    def is_watch(self) -> bool:
        return self.query.get("watch") in ("true", "1")


class KubeReplay:
    """`with KubeReplay("changes") as server:`; `server.url` is the API server's.

    A list is answered by the next recorded list with the same `continue`, a watch by the next recorded watch from the same version,
    whichever namespace and page size is asked for: so a client has to carry on from where the real server left it. What no recording
    answers gets status 500 and stands in `strays`. Once the recorded watches are through, a watch from the last version stays open
    and silent until the server is closed.

    A list of a single item asks how far the server is, and gets a version that no recording gets to. The addresses of pods are as
    recorded.
    """

    def __init__(self, *names: str) -> None:
        self._left = [exchange for name in names for exchange in conversation(name)]
        self._closing = threading.Event()
        self._guard = threading.Lock()
        self.asked: list[Asked] = []
        self.strays: list[Asked] = []

    def __enter__(self) -> Self:
        replay = self

        class Handler(QuietHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                replay._answer(self)

        self._serving = serve(Handler)
        self.url = self._serving.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self._closing.set()
        self._serving.__exit__(None, None, None)

    @property
    def left(self) -> int:
        """How many recorded exchanges nobody has asked for yet."""
        with self._guard:
            return len(self._left)

    def _answer(self, handler: QuietHandler) -> None:
        address = urlsplit(handler.path)
        headers = {name.lower(): value for name, value in handler.headers.items()}
        asked = Asked(address.path, dict(parse_qsl(address.query, keep_blank_values=True)), headers)
        if asked.query.get("limit") == "1":
            handler.answer(200, json.dumps({"metadata": {"resourceVersion": FAR_ON}}).encode())
            return
        with self._guard:
            self.asked.append(asked)
            exchange = next((one for one in self._left if _answers(one, asked)), None)
            if exchange is not None:
                self._left.remove(exchange)
            is_over = not any("events" in one for one in self._left)
            if exchange is None and not (asked.is_watch and is_over):
                self.strays.append(asked)
        if exchange is None:
            if asked.is_watch and is_over:
                self._tell(handler, [], ends=False)
            else:
                handler.answer(500, json.dumps({"message": f"no recording answers {handler.path}"}).encode())
        elif "events" in exchange:
            self._tell(handler, exchange["events"], ends=True)
        else:
            handler.answer(exchange["status"], json.dumps(exchange["body"]).encode())

    def _tell(self, handler: QuietHandler, events: list[dict[str, Any]], *, ends: bool) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        try:
            handler.wfile.flush()
            for event in events:
                if self._closing.is_set():
                    break
                line = json.dumps(event, separators=(",", ":")).encode() + b"\n"
                handler.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
                handler.wfile.flush()
            if not ends:
                self._closing.wait()
            handler.wfile.write(b"0\r\n\r\n")
        except OSError:
            handler.close_connection = True


def _answers(exchange: dict[str, Any], asked: Asked) -> bool:
    if not asked.path.endswith("/pods"):
        return False
    query = exchange["query"]
    if ("watch" in query) != asked.is_watch:
        return False
    key = "resourceVersion" if asked.is_watch else "continue"
    return bool(query.get(key, "") == asked.query.get(key, ""))
