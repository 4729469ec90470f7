"""A hundred servers that answer beside four hundred that hang: `.venv/bin/python -m bench.hanging`, about a minute and a half.

Of those that hang, half take the connection and never answer, a quarter send a byte of their headers a second, and a quarter drop what is
sent to them, as a firewall does (a full backlog). It prints how far apart the ticks of the hundred come against their interval, as their
server sees them, how long /metrics takes, and threads, descriptors, CPU and resident memory of the exporter. `--nofile 1024:4096` limits
its open files, `--source FOLDER` takes another version of the exporter (the folder that holds the package), `--hanging 0` shows the cost
of ticks alone.
"""

from __future__ import annotations

import selectors
import socket
import tempfile
import threading
import time
from collections import defaultdict
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from bench.peers import add_daemon_flags, fetch, start_exporter
from bench.shared import describe_high, make_parser, raise_file_limit, say
from tests.support.builders.recordings import page

GOOD, HANGING = 100, 400
WARM_UP_SECONDS = 25.0
PAGE = page("vllm-0.32", 60)


class Servers(threading.Thread):
    """All of them, in one thread: `/N/metrics` of one port answers, and the others do not."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._selector = selectors.DefaultSelector()
        self._dripping: list[socket.socket] = []
        self._kept: list[socket.socket] = []
        # by target, when it was asked
        self.asked: dict[str, list[float]] = defaultdict(list)
        body = b"Content-Type: text/plain\r\nContent-Length: %d\r\n\r\n%b" % (len(PAGE), PAGE)
        self._answer = b"HTTP/1.1 200 OK\r\n" + body
        self.good, self.silent, self.drip = (self._listen(kind) for kind in ("good", "silent", "drip"))
        self.dropped = self._fill_backlog()

    def _listen(self, kind: str) -> int:
        listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ, kind)
        return int(listener.getsockname()[1])

    def _fill_backlog(self) -> int:
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        self._kept.append(listener)
        for _ in range(4):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
            self._kept.append(filler)
        return int(listener.getsockname()[1])

    def run(self) -> None:
        dripped = time.monotonic()
        while True:
            for key, _events in self._selector.select(0.5):
                sock = key.fileobj
                assert isinstance(sock, socket.socket)
                if key.data == "open":
                    self._serve(sock)
                else:
                    self._accept(sock, key.data)
            if time.monotonic() - dripped >= 1:
                dripped = time.monotonic()
                self._dripping = [sock for sock in self._dripping if _send_byte(sock)]

    def _accept(self, listener: socket.socket, kind: str) -> None:
        with suppress(BlockingIOError):
            while True:
                sock, _ = listener.accept()
                if kind == "good":
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                else:
                    sock.setblocking(False)
                if kind == "drip":
                    self._dripping.append(sock)
                self._selector.register(sock, selectors.EVENT_READ, "open")

    def _serve(self, sock: socket.socket) -> None:
        try:
            request = sock.recv(65536)
        except OSError:
            request = b""
        if not request:
            self._selector.unregister(sock)
            sock.close()
        elif sock.getsockname()[1] == self.good:
            path = request.split(b" ", 2)[1].decode()
            if path.endswith("/metrics"):
                self.asked[path].append(time.monotonic())
                sock.sendall(self._answer)
            else:
                sock.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")


def _send_byte(sock: socket.socket) -> bool:
    try:
        sock.send(b"H")
    except OSError:
        return False
    return True


def configure(servers: Servers, hanging: int, interval: float) -> dict[str, object]:
    ports = (servers.silent, servers.drip, servers.silent, servers.dropped)
    good = [
        {"name": f"good-{n}", "url": f"http://127.0.0.1:{servers.good}", "metrics_path": f"/{n}/metrics"}
        for n in range(GOOD)
    ]
    bad = [
        {"name": f"hangs-{n}", "url": f"http://127.0.0.1:{ports[n % 4]}", "metrics_path": f"/{n}/metrics"}
        for n in range(hanging)
    ]
    # mixed, as a list of a fleet is
    targets = [one for n in range(max(GOOD, hanging)) for one in (*good[n : n + 1], *bad[n : n + 1])]
    return {"scrape": {"interval": f"{interval:g}s"}, "gpu": {"enabled": False}, "targets": targets}


def main() -> None:
    parser = make_parser("hanging", __doc__)
    parser.add_argument("--hanging", type=int, default=HANGING)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--interval", type=float, default=5.0)
    add_daemon_flags(parser)
    args = parser.parse_args()
    raise_file_limit()
    servers = Servers()
    servers.start()
    with tempfile.TemporaryDirectory() as folder:
        config = configure(servers, args.hanging, args.interval)
        daemon, port = start_exporter(Path(folder), config, nofile=args.nofile, source=args.source)
        url = f"http://127.0.0.1:{port}"
        with daemon as exporter:
            time.sleep(WARM_UP_SECONDS)
            cpu, began, pages, failed = exporter.cpu_seconds(), time.monotonic(), [], 0
            most_threads = most_files = 0
            while time.monotonic() < began + args.seconds:
                asked = time.monotonic()
                try:
                    fetch(f"{url}/metrics", 10.0)
                    pages.append(time.monotonic() - asked)
                except OSError:
                    failed += 1
                most_threads = max(most_threads, exporter.count("task"))
                most_files = max(most_files, exporter.count("fd"))
                time.sleep(max(0.0, asked + 1.0 - time.monotonic()))
            ended = time.monotonic()
            used = exporter.cpu_seconds() - cpu
            gaps, ticks = [], 0
            for times in servers.asked.values():
                within = [at for at in times if began <= at <= ended]
                ticks += len(within)
                gaps += [later - earlier for earlier, later in pairwise(within)]
            due = GOOD * (ended - began) / args.interval
            say(f"{GOOD} answer, {args.hanging} hang, {ended - began:.0f} s, interval {args.interval:g} s")
            say(f"ticks of those that answer     {ticks} of {due:.0f}, {100 * ticks / due:.1f} %")
            if gaps:
                off = [100 * abs(gap - args.interval) / args.interval for gap in gaps]
                say(f"gap between two of one target  {describe_high(gaps, 's', 2)}, most {max(gaps):.2f} s")
                say(f"off the interval               {describe_high(off, '%', 1)}, most {max(off):.1f} %")
            if pages:
                say(f"/metrics                       {describe_high(pages, 's', 2)}, {failed} failed")
            say(f"threads {most_threads}, descriptors {most_files}, resident {exporter.resident_bytes() / 1e6:.0f} MB")
            say(f"CPU {100 * used / (ended - began):.1f} % of a core")
            stopping = time.monotonic()
            exporter.process.terminate()
            exporter.process.wait()
            say(f"SIGTERM to its end             {time.monotonic() - stopping:.2f} s")


if __name__ == "__main__":
    main()
