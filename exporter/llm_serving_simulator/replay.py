"""A recording served over HTTP as the server that it was recorded from.

python -m llm_serving_simulator.replay --recording vllm-0.32.tar.xz --listen 127.0.0.1:8000 --speed 1
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from llm_serving_exporter.terminal import ended_by_signal, print_line
from llm_serving_simulator.recording import Recording, demo_recording
from llm_serving_simulator.timeline import Pages, Stepped, Timeline
from llm_serving_simulator.web import JSON_CONTENT_TYPE, METRICS_CONTENT_TYPE, NOT_FOUND, Answer, SimServer


class ReplayServer(SimServer):
    """An HTTP server that answers as the recorded server did: /metrics, /version, /v1/models, /server_info, /health, else 404."""

    def __init__(self, pages: Pages, recording: Recording, host: str = "127.0.0.1", port: int = 0) -> None:
        self._pages = pages
        self._fixed = {path: recording.members[name] for path, name in _ENDPOINTS if name in recording.members}
        super().__init__(self._respond, host, port, "replay-server")

    def _respond(self, method: str, path: str) -> Answer:
        path = path.partition("?")[0]
        if method != "GET":
            return Answer(501, None, b"")
        if path == "/metrics":
            return Answer(200, METRICS_CONTENT_TYPE, self._pages.body())
        if path == "/health":
            return Answer(200, None, b"")
        if path in self._fixed:
            return Answer(200, JSON_CONTENT_TYPE, self._fixed[path])
        return NOT_FOUND


class SteppedServer(ReplayServer):
    """A replay server whose page the test chooses: `show(n)`; with `advance`, every GET moves one page on."""

    def __init__(self, recording: Recording, advance: bool = False, host: str = "127.0.0.1", port: int = 0) -> None:
        self._stepped = Stepped(recording, advance)
        super().__init__(self._stepped, recording, host, port)

    def show(self, number: int) -> None:
        """Show page `number` from the next GET on. Raises KeyError where the recording has no such page."""
        self._stepped.show(number)


# the recorded servers ran with VLLM_SERVER_DEV_MODE=1, hence /server_info
_ENDPOINTS = (
    ("/version", "endpoints/version.body"),
    ("/v1/models", "endpoints/v1_models.body"),
    ("/server_info", "endpoints/server_info_config_format_json.body"),
)


def split_address(address: str) -> tuple[str, int]:
    """`host:port` or `:port` (loopback) as a pair. Raises ValueError on anything else."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{address!r} is not host:port")
    return host.strip("[]") or "127.0.0.1", int(port)


def main(argv: Sequence[str] | None = None) -> int:
    """Serve a recording at its own pace until SIGINT or SIGTERM; prints the URL once it listens."""
    parser = argparse.ArgumentParser(prog="python -m llm_serving_simulator.replay", description=main.__doc__)
    parser.add_argument("--recording", type=Path, help="archive (.tar.xz); default: the vLLM 0.32 run of the package")
    parser.add_argument("--listen", default="127.0.0.1:8000", metavar="HOST:PORT", help="default: %(default)s")
    parser.add_argument("--speed", type=float, default=1.0, help="times the recorded pace; default: %(default)s")
    args = parser.parse_args(argv)
    try:
        host, port = split_address(args.listen)
        recording = Recording.load(args.recording) if args.recording else demo_recording()
        timeline = Timeline(recording, speed=args.speed)
    except (ValueError, OSError) as error:
        parser.error(str(error))
    with ended_by_signal() as ended:
        try:
            server = ReplayServer(timeline, recording, host, port)
        except OSError as error:
            parser.error(f"cannot listen on {args.listen}: {error.strerror}; choose another --listen")
        with server:
            print_line(server.url)
            ended.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
