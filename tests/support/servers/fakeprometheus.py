"""An HTTP server that answers like a Prometheus which has one target, flat as a board; any answer can be replaced."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.support.servers.http_server import QuietHandler, serve

Answer = tuple[int, Any]
# path, parameters -> an answer, or None for the ordinary one
Override = Callable[[str, dict[str, str]], Answer | None]

OWN = {"target": "a:8000", "model_name": "m", "role": "unified"}
# name in a query, labels beside the target's, value in every hour
GROWTH = (
    ("cost_usd_total", {"phase": "decode", "rate": "spot", "method": "roofline"}, 3.0),
    ("cost_usd_total", {"phase": "idle", "rate": "spot", "method": "roofline"}, 1.0),
    ("gpu_seconds_total", {"state": "busy", "rate": "spot"}, 2700.0),
    ("gpu_seconds_total", {"state": "idle", "rate": "spot"}, 900.0),
    ("prefill_tokens_total", {}, 9e6),
    ("decode_tokens_total", {}, 1e6),
    ("cached_prompt_tokens_total", {}, 1e6),
    ("_prompt_tokens_total", {}, 1e7),
    ("requests_finished_total", {}, 1000.0),
)


def success(result: Any, **more: Any) -> Answer:
    return 200, {"status": "success", "data": result, **more}


class FakePrometheus:
    """`with FakePrometheus(now) as server:`; `seen` has each query with its path and parameters."""

    def __init__(self, now: float, override: Override = lambda path, form: None, **labels: str) -> None:
        self.now, self.override, self.own = now, override, {**OWN, **labels}
        self.seen: list[tuple[str, dict[str, str]]] = []
        self.headers: list[dict[str, str]] = []
        outer = self

        class Handler(QuietHandler):
            protocol_version = "HTTP/1.1"
            # else each small answer waits 40 ms for an acknowledgement
            disable_nagle_algorithm = True

            def _respond(self) -> None:
                body = self.read_body().decode()
                parts = urlsplit(self.path)
                form = {key: values[0] for key, values in parse_qs(body or parts.query).items()}
                outer.seen.append((parts.path, form))
                outer.headers.append(dict(self.headers))
                status, document = outer.override(parts.path, form) or outer.ordinary(parts.path, form)
                content = document if isinstance(document, bytes) else json.dumps(document).encode()
                self.answer(status, content)

            do_GET = do_POST = _respond  # noqa: N815  # names of http.server

        self._serving = serve(Handler)

    def __enter__(self) -> FakePrometheus:
        self.url = self._serving.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self._serving.__exit__(None, None, None)

    def ordinary(self, path: str, form: dict[str, str]) -> Answer:
        """What a healthy one says."""
        if path.endswith("/runtimeinfo"):
            return success({"storageRetention": "30d"})
        query = form["query"]
        if query == "vector(time())":
            return success({"resultType": "vector", "result": [{"metric": {}, "value": [self.now, str(self.now)]}]})
        if path.endswith("/query"):
            return success({"resultType": "vector", "result": []})
        begin, end, step = (float(form[key]) for key in ("start", "end", "step"))
        moments = [begin + number * step for number in range(round((end - begin) / step) + 1)]
        result = []
        if query.startswith("max by") and query.endswith("gpu_seconds_total)"):
            result = [{"metric": {"target": self.own["target"]}, "values": [[at, "1"] for at in moments]}]
        elif "increase(" in query:
            result = [
                {"metric": {**self.own, **labels}, "values": [[at, str(value)] for at in moments]}
                for name, labels, value in GROWTH
                if f"{name}[" in query
            ]
        return success({"resultType": "matrix", "result": result})
