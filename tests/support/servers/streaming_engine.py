"""A server that answers /v1/completions token by token as vLLM does, and counts what it did on a recorded page of vLLM."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.support.builders.recordings import page
from tests.support.servers.http_server import QuietHandler, serve

MODEL = "meta-llama/Llama-3.1-8B-Instruct"
# whose prompts begin with this many tokens that it has met have found them in its cache
BLOCK = 16
TOKEN_SECONDS = 0.002


class StreamingEngine:
    """`faults`: what happens to a request by the length of its answer: "refuse", "cut" (amid it), "error" (within the stream), "mute" (no
    usage); "endless" never ends. `url`: its address. `root`: what it says that it has loaded."""

    def __init__(self, url: str = "") -> None:
        self.url, self.root = url, MODEL
        self.faults: dict[int, str] = {}
        self.answered: list[str] = []
        self._lock = threading.Lock()
        self._blocks: set[tuple[int, ...]] = set()
        self._counts = dict.fromkeys(
            ("prompt_tokens", "prompt_tokens_cached", "generation_tokens", "request_success"), 0
        )

    def make_page(self) -> bytes:
        text = page("h100-vllm-0.25.1", 0).decode()
        with self._lock:
            for name, count in self._counts.items():
                labels = r'finished_reason="length",' if name == "request_success" else ""
                text, found = re.subn(
                    rf'^(vllm:{name}_total{{engine="0",{labels}[^,]*}}) .*$', rf"\1 {count}", text, flags=re.MULTILINE
                )
                assert found == 1, name
        return text.replace("# HELP vllm:prompt_tokens_total .", "# HELP vllm:prompt_tokens_total Of prompts.").encode()

    def find_cached(self, prompt: list[int]) -> int:
        block = tuple(prompt[:BLOCK])
        with self._lock:
            known = block in self._blocks
            self._blocks.add(block)
        return BLOCK if known and len(prompt) > BLOCK else 0

    def count(self, **more: int) -> None:
        with self._lock:
            for name, value in more.items():
                self._counts[name] += value

    def stream(self, asked: dict[str, Any]) -> Iterator[dict[str, Any] | None]:
        """The chunks of an answer; None: the connection breaks."""
        length, prompt = asked["max_tokens"], asked["prompt"]
        fault, cached = self.faults.get(length), self.find_cached(prompt)
        self.count(prompt_tokens=len(prompt), prompt_tokens_cached=cached)
        for number in range(1, length + 1):
            time.sleep(TOKEN_SECONDS)
            if fault == "cut" and number > 1:
                yield None
            if fault == "error" and number > 1:
                yield {"error": {"message": "out of blocks", "code": 500}}
                return
            self.count(generation_tokens=1)
            yield {"choices": [{"text": "x", "finish_reason": "length" if number == length else None}], "usage": None}
        self.count(request_success=1)
        if fault != "mute":
            usage = {
                "prompt_tokens": len(prompt),
                "completion_tokens": length,
                "prompt_tokens_details": {"cached_tokens": cached},
            }
            yield {"choices": [], "usage": usage}


@contextmanager
def streaming_engine() -> Iterator[StreamingEngine]:
    """One that runs."""
    engine = StreamingEngine()

    class Handler(QuietHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if self.path == "/metrics":
                return self.answer(200, engine.make_page(), "text/plain; version=0.0.4")
            if self.path == "/v1/models":
                data = [{"id": MODEL, "object": "model", "owned_by": "vllm", "root": engine.root}]
                return self.answer(200, json.dumps({"object": "list", "data": data}).encode())
            if self.path == "/version":
                return self.answer(200, b'{"version":"0.25.1"}')
            return self.answer(404, b"{}")

        def do_POST(self) -> None:
            asked = json.loads(self.read_body())
            assert asked["stream"]
            assert asked["stream_options"] == {"include_usage": True}
            assert asked["model"] == MODEL
            if engine.faults.get(asked["max_tokens"]) == "refuse":
                return self.answer(503, b'{"error":"busy"}')
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.close_connection = True
            try:
                for chunk in engine.stream(asked):
                    if chunk is None:
                        return None
                    self._send(b"data: " + json.dumps(chunk).encode() + b"\n\n")
                self._send(b"data: [DONE]\n\n")
                self._send(b"")
            except OSError:
                engine.answered.append("client gone")
            return None

        def _send(self, data: bytes) -> None:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    with serve(Handler) as url:
        engine.url = url
        yield engine
