"""Good scrapes beside a crowd of strangers: `.venv/bin/python -m bench.strangers`, about a minute and a half.

500 connections send a byte of their headers a second, 500 send nothing, 500 guess a password each second, and 100 with a right name
ask for /metrics and never read it; whoever is cut comes again. Beside them one scraper keeps its connection and one opens a new one
for each scrape, once a second each, both from 127.0.0.1; a third one asks a plain server that nobody else does: what it waits for is the
machine, which the crowd keeps busy too. The crowd comes from 127.0.0.2 to 127.0.0.254, or with `--own-address` from
127.0.0.1 too. `--nofile 1024:4096` limits the exporter's open files, `--source FOLDER` takes another version of the exporter (the
folder that holds the package).
"""

from __future__ import annotations

import base64
import http.client
import multiprocessing
import os
import socket
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import bcrypt
import yaml

from bench.peers import Program, add_daemon_flags, start_exporter
from bench.shared import describe_high, make_parser, raise_file_limit, say
from tests.support.servers.server_process import free_port

SLOW, MUTE, GUESSING, GREEDY = 500, 500, 500, 100
# bcrypt's usual cost
HASH_ROUNDS = 10
PASSWORD = "correct horse"
WARM_UP_SECONDS = 10.0
PACE_SECONDS = 1.0
# the first byte of Linux's struct tcp_info
TCP_ESTABLISHED = 1


def authorize(word: str) -> str:
    return f"Basic {base64.b64encode(f'alice:{word}'.encode()).decode()}"


def ask_for(word: str) -> bytes:
    return f"GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: {authorize(word)}\r\n\r\n".encode()


class Stranger:
    """One socket of the crowd, which comes again when it is cut."""

    def __init__(self, kind: str, number: int, port: int, own_address: bool) -> None:
        self.kind, self._number, self._port = kind, number, port
        self._source = "127.0.0.1" if own_address else f"127.0.0.{2 + number % 253}"
        self._socket: socket.socket | None = None
        self._guesses = 0

    def act(self) -> None:
        """What it does once a second."""
        try:
            self._notice_end()
            if self._socket is None:
                self._connect()
            elif self.kind == "slow":
                self._socket.send(b"H")
            # at once, not a second later: by then it may have been cut
            if self.kind == "guessing" and self._socket is not None:
                self._guesses += 1
                self._socket.send(ask_for(f"guess {self._number} {self._guesses}"))
        except BlockingIOError:
            pass
        except OSError:
            self._drop()

    def _connect(self) -> None:
        self._socket = socket.socket()
        self._socket.setblocking(False)
        # the port is chosen when it connects: one address has enough of them
        with suppress(AttributeError, OSError):
            self._socket.setsockopt(socket.IPPROTO_IP, 24, 1)  # IP_BIND_ADDRESS_NO_PORT
        if self.kind == "greedy":
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self._socket.bind((self._source, 0))
        self._socket.connect_ex(("127.0.0.1", self._port))
        if self.kind == "slow":
            self._socket.send(b"GET /metrics HTTP/1.1\r\nX: ")
        elif self.kind == "greedy":
            self._socket.send(ask_for(PASSWORD) * 20)

    def _notice_end(self) -> None:
        if self._socket is None:
            return
        if self.kind == "greedy":  # without taking what came
            if self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != TCP_ESTABLISHED:
                self._drop()
            return
        with suppress(BlockingIOError):
            if not self._socket.recv(65536):
                self._drop()

    def _drop(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def crowd(port: int, own_address: bool) -> None:
    """Never ends by itself."""
    raise_file_limit()
    kinds = ["slow"] * SLOW + ["mute"] * MUTE + ["guessing"] * GUESSING + ["greedy"] * GREEDY
    strangers = [Stranger(kind, number, port, own_address) for number, kind in enumerate(kinds)]
    while True:
        began = time.monotonic()
        for number, stranger in enumerate(strangers):
            stranger.act()
            if number % 16 == 0:  # spread over the second
                time.sleep(max(0.0, began + PACE_SECONDS * number / len(strangers) - time.monotonic()))
        time.sleep(max(0.0, began + PACE_SECONDS - time.monotonic()))


class Scraper:
    """Asks for /metrics as Prometheus does, on one connection or a new one each time."""

    def __init__(self, port: int, *, keeps: bool) -> None:
        self._port, self._keeps = port, keeps
        self._kept: http.client.HTTPConnection | None = None
        self.seconds: list[float] = []
        self.failed = 0

    def scrape(self) -> None:
        began = time.monotonic()
        connection = self._kept or http.client.HTTPConnection("127.0.0.1", self._port, timeout=10)
        try:
            connection.request("GET", "/metrics", headers={"Authorization": authorize(PASSWORD)})
            response = connection.getresponse()
            response.read()
            if response.status == 200:
                self.seconds.append(time.monotonic() - began)
            else:
                self.failed += 1
        except (OSError, http.client.HTTPException):
            self.failed += 1
            connection.close()
            self._kept = None
            return
        if self._keeps:
            self._kept = connection
        else:
            connection.close()

    def forget(self) -> None:
        """Counts from here on."""
        self.seconds.clear()
        self.failed = 0

    def report(self, name: str) -> None:
        if not self.seconds:
            say(f"{name:<15} answered 0 of {self.failed}")
            return
        times = [1000 * seconds for seconds in self.seconds]
        answered = f"answered {len(times)} of {len(times) + self.failed}"
        say(f"{name:<15} {answered}, {describe_high(times, 'ms', 0)}, most {max(times):.0f} ms")


def measure(scrapers: dict[str, Scraper], seconds: float) -> None:
    ends = time.monotonic() + seconds
    while (began := time.monotonic()) < ends:
        for scraper in scrapers.values():
            scraper.scrape()
        time.sleep(max(0.0, began + PACE_SECONDS - time.monotonic()))


def main() -> None:
    parser = make_parser("strangers", __doc__)
    parser.add_argument("--own-address", action="store_true")
    parser.add_argument("--seconds", type=float, default=60.0)
    add_daemon_flags(parser)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        hashed = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(HASH_ROUNDS)).decode()
        web = Path(folder) / "web.yml"
        web.write_text(yaml.safe_dump({"basic_auth_users": {"alice": hashed}}))
        targets = [{"name": "nobody", "url": f"http://127.0.0.1:{free_port()}"}]
        config = {"gpu": {"enabled": False}, "targets": targets}
        words = ("--web.config.file", str(web))
        daemon, port = start_exporter(Path(folder), config, *words, nofile=args.nofile, source=args.source, ready=None)
        plain_port = free_port()
        (Path(folder) / "metrics").write_text("up 1\n")
        plain = [sys.executable, "-m", "http.server", str(plain_port), "--bind", "127.0.0.1", "--directory", folder]
        with Program(*plain), daemon as exporter:
            scrapers = {
                "kept": Scraper(port, keeps=True),
                "new each time": Scraper(port, keeps=False),
                "plain server": Scraper(plain_port, keeps=False),
            }
            while not all(scraper.seconds for scraper in scrapers.values()):
                time.sleep(0.2)
                measure(scrapers, 0.1)
            for scraper in scrapers.values():
                scraper.forget()
            measure(scrapers, 5.0)
            alone = exporter.cpu_seconds()
            for name, scraper in scrapers.items():
                scraper.report(f"alone, {name}")
                scraper.forget()
            strangers = multiprocessing.Process(target=crowd, args=(port, args.own_address), daemon=True)
            strangers.start()
            try:
                measure(scrapers, WARM_UP_SECONDS + args.seconds)
                used = exporter.cpu_seconds() - alone
                files, threads = exporter.count("fd"), exporter.count("task")
                for name, scraper in scrapers.items():
                    scraper.report(name)
                load = ", ".join(f"{one:.1f}" for one in os.getloadavg())
                say(
                    f"CPU {100 * used / (WARM_UP_SECONDS + args.seconds):.0f} % of a core, threads {threads}, descriptors {files}, "
                    f"resident {exporter.resident_bytes() / 1e6:.0f} MB; the machine's load {load} on {os.cpu_count()} cores"
                )
            finally:
                strangers.terminate()
                strangers.join()


if __name__ == "__main__":
    main()
