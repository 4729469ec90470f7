"""A stand-in for a Kubernetes API server with a large fleet, in a process of its own: `python -m bench.stand_in FOLDER --pods 2000`.

It lists and watches pods over TLS as the real one does (HTTP/1.1, bookmarks, versions), none of which changes, and says what a real one
said of one pod (bench/pod_events.json, recorded of a kube-apiserver), under the name, UID, node and address of each pod of the fleet.
FOLDER gets the authority's certificate, and a kubeconfig once it listens.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import time
import uuid
from contextlib import suppress
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import trustme

from bench.shared import make_parser

RECORDING = Path(__file__).with_name("pod_events.json")
NAMESPACE, NODE_GPUS = "fleet", 8
NAME, RECORDED_PORT = "vllm-llama3-deployment-vllm-7c9f6d5b8d-", "8000"
BOOKMARK_SECONDS = 60.0
# of all that there is
VERSION = 1000


def name_pod(number: int) -> str:
    return f"{NAME}{number:05d}"


def name_node(number: int) -> str:
    return f"node-{number // NODE_GPUS}"


def address(number: int) -> str:
    """On loopback, where nothing listens."""
    return f"127.1.{number // 250}.{number % 250 + 1}"


class StandIn:
    """The pods, each as the recorded one is when it is Ready."""

    def __init__(self, pods: int, port: int) -> None:
        recorded = json.loads(RECORDING.read_text())
        self._pods, self._port = pods, str(port)
        self._uid, self._version_then = recorded["uid"], recorded["version"]
        # the pod as JSON, the same text as the server's
        self._text, self._bookmark = recorded["pods"]["ready"], recorded["bookmark"]

    def _write_pod(self, number: int) -> bytes:
        text = self._text
        for recorded, now in (
            # first, since what comes after it may have the same digits
            (RECORDED_PORT, self._port),
            (name_pod(0), name_pod(number)),
            (self._uid, str(uuid.UUID(int=number + 1))),
            (f'"{name_node(0)}"', f'"{name_node(number)}"'),
            (address(0), address(number)),
            (f'"resourceVersion":"{self._version_then["ready"]}"', f'"resourceVersion":"{VERSION}"'),
        ):
            text = text.replace(recorded, now)
        return text.encode()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                query = dict(parse_qsl(urlsplit(head.split(b" ", 2)[1].decode()).query, keep_blank_values=True))
                if "watch" in query:
                    await self._watch(writer, query)
                else:
                    body = self._list(query)
                    writer.write(
                        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
                    )
                    writer.write(body)
                await writer.drain()
        writer.close()

    def _select(self, query: dict[str, str]) -> range:
        """The pods of the node that is asked for, else all."""
        _, _, node = query.get("fieldSelector", "").partition("spec.nodeName=")
        first = int(node.rpartition("-")[2]) * NODE_GPUS if node else 0
        return range(first, first + NODE_GPUS if node else self._pods)

    def _list(self, query: dict[str, str]) -> bytes:
        chosen = self._select(query)
        at, limit = int(query.get("continue", chosen.start)), int(query.get("limit", len(chosen)))
        end = min(at + limit, chosen.stop)
        metadata = {"resourceVersion": str(VERSION), **({"continue": str(end)} if end < chosen.stop else {})}
        head = json.dumps({"kind": "PodList", "apiVersion": "v1", "metadata": metadata})[:-1].encode()
        return b'%s,"items":[%s]}' % (head, b",".join(self._write_pod(number) for number in range(at, end)))

    async def _watch(self, writer: asyncio.StreamWriter, query: dict[str, str]) -> None:
        """Nothing but bookmarks."""
        ends = time.monotonic() + float(query["timeoutSeconds"])
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
        then = f'"resourceVersion":"{self._version_then["bookmark"]}"'
        line = self._bookmark.replace(then, f'"resourceVersion":"{VERSION}"').encode() + b"\n"
        while (left := ends - time.monotonic()) > 0:
            await writer.drain()
            await asyncio.sleep(min(left, BOOKMARK_SECONDS))
            writer.write(b"%x\r\n%s\r\n" % (len(line), line))
        writer.write(b"0\r\n\r\n")


async def serve_fleet(folder: Path, pods: int, port: int) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    server = await asyncio.start_server(StandIn(pods, port).serve, "127.0.0.1", 0, ssl=context)
    cluster = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    fresh = folder / "kubeconfig.new"
    fresh.write_text(
        f"""apiVersion: v1
kind: Config
current-context: here
clusters: [{{name: here, cluster: {{server: "{cluster}", certificate-authority: "{folder / "ca.pem"}"}}}}]
users: [{{name: user, user: {{token: "any"}}}}]
contexts: [{{name: here, context: {{cluster: here, user: user}}}}]
"""
    )
    fresh.rename(folder / "kubeconfig")
    await server.serve_forever()


def main() -> None:
    parser = make_parser("stand_in", __doc__)
    parser.add_argument("folder", type=Path, help="for the certificate and the kubeconfig")
    parser.add_argument("--pods", type=int, default=2000)
    parser.add_argument("--port", type=int, default=int(RECORDED_PORT), help="of the pods' engines (default 8000)")
    arguments = parser.parse_args()
    asyncio.run(serve_fleet(arguments.folder, arguments.pods, arguments.port))


if __name__ == "__main__":
    main()
