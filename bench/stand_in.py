"""A stand-in for a Kubernetes API server with a large fleet, in a process of its own: `python -m bench.stand_in FOLDER --pods 2000`.

It lists and watches pods over TLS as the real one does (HTTP/1.1, an event a chunk, bookmarks, versions) and says what a real one said of
one pod (bench/pod_events.json, made by `python -m bench.churn --record`), under the name, UID, node and address of each pod of the fleet.
No etcd and no disk holds it up: it tells as many changes a second as it is asked to. FOLDER gets the authority's certificate, a
kubeconfig, and `url` once it listens. `/stand-in/rate`, `/stand-in/move` and `/stand-in/told` are for the benchmark.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import ssl
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import trustme

RECORDING = Path(__file__).with_name("pod_events.json")
NAMESPACE, NODE_GPUS = "fleet", 8
NAME, RECORDED_PORT = "vllm-llama3-deployment-vllm-7c9f6d5b8d-", "8000"
BOOKMARK_SECONDS = 60.0
PACE_SECONDS = 0.01


def name_pod(number: int) -> str:
    return f"{NAME}{number:05d}"


def name_node(number: int) -> str:
    return f"node-{number // NODE_GPUS}"


def address(number: int) -> str:
    """On loopback, where nothing listens."""
    return f"127.1.{number // 250}.{number % 250 + 1}"


@dataclass
class Pod:
    """What is true of one pod now."""

    kind: str = "ready"  # of the recorded events, the one that says so
    address: str = ""  # "": as `address` says
    version: int = 1


@dataclass(frozen=True)
class Change:
    """An event of the watch, in the order in which they are told."""

    version: int
    number: int  # of the pod
    told: float  # by the monotonic clock


class Fleet:
    """The pods and what has changed."""

    def __init__(self, pods: int, port: int) -> None:
        recorded = json.loads(RECORDING.read_text())
        self.uid, self.version_then = recorded["uid"], recorded["version"]
        # kind -> the pod as JSON, the same text as the server's
        self._texts = {kind: text.encode() for kind, text in recorded["pods"].items()}
        self.bookmark = recorded["bookmark"].encode()
        # of the engines
        self._port = str(port)
        self.pods = {number: Pod() for number in range(pods)}
        self.uids = [str(uuid.UUID(int=number + 1)) for number in range(pods)]
        self.changes: list[Change] = []
        self.version = 1000
        self.changed = asyncio.Event()
        self._order: Iterator[int] = iter(())

    def write_pod(self, number: int) -> bytes:
        pod = self.pods[number]
        text = self._texts[pod.kind]
        for recorded, now in (
            # first, since what comes after it may have the same digits
            (RECORDED_PORT, self._port),
            (name_pod(0), name_pod(number)),
            (self.uid, self.uids[number]),
            (f'"{name_node(0)}"', f'"{name_node(number)}"'),
            (address(0), pod.address or address(number)),
            (f'"resourceVersion":"{self.version_then[pod.kind]}"', f'"resourceVersion":"{pod.version}"'),
        ):
            text = text.replace(recorded.encode(), now.encode())
        return text

    def change(self, number: int, kind: str, moves_to: str = "") -> None:
        """`kind` "ready" stands for "the other of ready and unready"."""
        pod = self.pods[number]
        self.version += 1
        pod.kind = "unready" if kind == "ready" == pod.kind else kind
        pod.address, pod.version = moves_to or pod.address, self.version
        self.changes.append(Change(self.version, number, time.monotonic()))
        self.changed.set()

    def next_pod(self) -> int:
        """Each in its turn, so that no pod changes twice before all have."""
        number = next(self._order, None)
        if number is None:
            self._order = iter(random.sample(range(len(self.pods)), len(self.pods)))
            number = next(self._order)
        return number


class StandIn:
    """Answers, and changes pods at a pace."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._rate, self._kind = 0.0, "ready"
        self._begun, self._changed = time.monotonic(), 0
        # since the rate was set: events that watches were told, their bytes, and how long the slowest took to be taken by the connection
        self._told, self._bytes, self._slowest_seconds = 0, 0, 0.0

    async def keep_changing(self) -> None:
        while True:
            due = int((time.monotonic() - self._begun) * self._rate)
            for _ in range(due - self._changed):
                self._fleet.change(self._fleet.next_pod(), self._kind)
            self._changed = max(due, self._changed)
            await asyncio.sleep(PACE_SECONDS)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                address = urlsplit(head.split(b" ", 2)[1].decode())
                query = dict(parse_qsl(address.query, keep_blank_values=True))
                if not address.path.endswith("/pods"):
                    self._answer(writer, json.dumps(self._obey(address.path, query)).encode())
                elif "watch" in query:
                    await self._watch(writer, query)
                else:
                    self._answer(writer, self._list(query))
                await writer.drain()
        writer.close()

    def _answer(self, writer: asyncio.StreamWriter, body: bytes) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body))
        writer.write(body)

    def _select(self, query: dict[str, str]) -> range:
        """The pods of the node that is asked for, else all."""
        _, _, node = query.get("fieldSelector", "").partition("spec.nodeName=")
        first = int(node.rpartition("-")[2]) * NODE_GPUS if node else 0
        return range(first, first + NODE_GPUS if node else len(self._fleet.pods))

    def _list(self, query: dict[str, str]) -> bytes:
        chosen = self._select(query)
        at, limit = int(query.get("continue", chosen.start)), int(query.get("limit", len(chosen)))
        end = min(at + limit, chosen.stop)
        metadata = {
            "resourceVersion": str(self._fleet.version),
            **({"continue": str(end)} if end < chosen.stop else {}),
        }
        head = json.dumps({"kind": "PodList", "apiVersion": "v1", "metadata": metadata})[:-1].encode()
        return b'%s,"items":[%s]}' % (head, b",".join(self._fleet.write_pod(number) for number in range(at, end)))

    async def _watch(self, writer: asyncio.StreamWriter, query: dict[str, str]) -> None:
        fleet, chosen = self._fleet, self._select(query)
        since, ends = int(query["resourceVersion"]), time.monotonic() + float(query["timeoutSeconds"])
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
        at, bookmark = 0, time.monotonic() + BOOKMARK_SECONDS
        while time.monotonic() < ends:
            while at < len(fleet.changes):
                change, at = fleet.changes[at], at + 1
                if change.version > since and change.number in chosen:
                    line = b'{"type":"MODIFIED","object":%s}\n' % fleet.write_pod(change.number)
                    await self._tell(writer, line)
                    self._told, self._bytes = self._told + 1, self._bytes + len(line)
                    self._slowest_seconds = max(self._slowest_seconds, time.monotonic() - change.told)
            if time.monotonic() > bookmark:
                bookmark += BOOKMARK_SECONDS
                then = f'"resourceVersion":"{fleet.version_then["bookmark"]}"'
                now = f'"resourceVersion":"{fleet.version}"'
                await self._tell(writer, fleet.bookmark.replace(then.encode(), now.encode()) + b"\n")
            fleet.changed.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(fleet.changed.wait(), 1.0)
        writer.write(b"0\r\n\r\n")

    async def _tell(self, writer: asyncio.StreamWriter, line: bytes) -> None:
        writer.write(b"%x\r\n%s\r\n" % (len(line), line))
        await writer.drain()

    def _obey(self, path: str, query: dict[str, str]) -> dict[str, float]:
        if path == "/stand-in/rate":
            self._rate, self._kind = float(query["each_second"]), query["kind"]
            self._begun, self._changed = time.monotonic(), 0
            self._told, self._bytes, self._slowest_seconds = 0, 0, 0.0
        elif path == "/stand-in/move":
            number = int(query["pod"])
            self._fleet.change(number, "ready", query["address"])
        seconds = time.monotonic() - self._begun
        return {"seconds": seconds, "told": self._told, "bytes": self._bytes, "slowest_seconds": self._slowest_seconds}


def write_access(folder: Path, url: str) -> None:
    """A kubeconfig, and last of all the address."""
    (folder / "kubeconfig").write_text(
        f"""apiVersion: v1
kind: Config
current-context: here
clusters: [{{name: here, cluster: {{server: "{url}", certificate-authority: "{folder / "ca.pem"}"}}}}]
users: [{{name: user, user: {{token: "any"}}}}]
contexts: [{{name: here, context: {{cluster: here, user: user}}}}]
"""
    )
    (folder / "url.new").write_text(url)
    (folder / "url.new").rename(folder / "url")


async def serve_fleet(folder: Path, pods: int, port: int) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    stand_in = StandIn(Fleet(pods, port))
    server = await asyncio.start_server(stand_in.serve, "127.0.0.1", 0, ssl=context)
    write_access(folder, f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    await stand_in.keep_changing()


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.stand_in", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="for the certificate, the kubeconfig and the address")
    parser.add_argument("--pods", type=int, default=2000)
    parser.add_argument("--port", type=int, default=int(RECORDED_PORT), help="of the pods' engines (default 8000)")
    arguments = parser.parse_args()
    asyncio.run(serve_fleet(arguments.folder, arguments.pods, arguments.port))


if __name__ == "__main__":
    main()
