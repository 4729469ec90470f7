"""Clients of the web server: raw connections, answers with their status, and what it is guarded with."""

import base64
import http.client
import os
import re
import socket
import ssl
from pathlib import Path
from urllib.parse import urlsplit

import bcrypt
import trustme

from llm_serving_exporter.web.server import WebServer
from tests.support.waiting import PATIENCE_SECONDS

# --- A client of the web server under test: whole requests, raw bytes, waiting for a close


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


# --- Web config files, certificates and requests with credentials, for tests of the guarded web server


# the lowest cost that bcrypt has: these are tests; one salt, so that tests named after a hash have one name in every process
_SALT = b"$2b$04$llmServingExporterTesu"
HASH = bcrypt.hashpw(b"correct horse", _SALT).decode()
OTHER_HASH = bcrypt.hashpw(b"battery staple", _SALT).decode()


def write(folder: Path, text: str, name: str = "web.yml") -> str:
    path = folder / name
    fresh = folder / f"{name}.new"
    fresh.write_text(text)
    os.replace(fresh, path)  # as configuration management does it: a new inode, so no clock's resolution matters
    return str(path)


def issue(authority: trustme.CA, folder: Path, *names: str) -> None:
    """server.crt and server.key in a folder, each replaced whole."""
    issued = authority.issue_cert(*(names or ("127.0.0.1",)))
    write(folder, b"".join(pem.bytes() for pem in issued.cert_chain_pems).decode(), "server.crt")
    write(folder, issued.private_key_pem.bytes().decode(), "server.key")


def trusting(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


def get(
    server: WebServer, context: ssl.SSLContext | None = None, path: str = "/", **headers: str
) -> http.client.HTTPResponse:
    parts = urlsplit(server.url)
    assert parts.hostname
    connection: http.client.HTTPConnection
    if context is None:
        connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=PATIENCE_SECONDS)
    else:
        connection = http.client.HTTPSConnection(parts.hostname, parts.port, timeout=PATIENCE_SECONDS, context=context)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        answer.read()
        return answer
    finally:
        connection.close()


def basic(name: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()
