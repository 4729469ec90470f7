"""A client of the web server under test: whole requests, raw bytes, waiting for a close."""

import http.client
import re
import socket
from urllib.parse import urlsplit

from llm_serving_exporter.web.server import WebServer
from tests.support.waiting import PATIENCE_SECONDS


def connect(server: WebServer, host: str | None = None) -> socket.socket:
    parts = urlsplit(server.url)
    return socket.create_connection((host or parts.hostname, parts.port), timeout=PATIENCE_SECONDS)


def client(server: WebServer, host: str | None = None) -> http.client.HTTPConnection:
    parts = urlsplit(server.url)
    return http.client.HTTPConnection(host or parts.hostname, parts.port, timeout=PATIENCE_SECONDS)


def ask(
    server: WebServer, path: str, method: str = "GET", body: bytes | None = None, **headers: str
) -> tuple[http.client.HTTPResponse, bytes]:
    connection = client(server)
    try:
        connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return answer, answer.read()
    finally:
        connection.close()


def until_closed(source: socket.socket) -> bytes:
    """All that comes until the server closes; a reset counts as a close."""
    received = b""
    try:
        while piece := source.recv(65536):
            received += piece
    except ConnectionError:
        pass
    return received


def raw(server: WebServer, data: bytes) -> bytes:
    with connect(server) as source:
        source.sendall(data)
        return until_closed(source)


def status_of(answer: bytes) -> int:
    match = re.match(rb"HTTP/1\.1 (\d+) ", answer)
    assert match, answer
    return int(match[1])
