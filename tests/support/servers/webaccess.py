"""Web config files, certificates and requests with credentials, for tests of the guarded web server."""

import base64
import http.client
import os
import ssl
from pathlib import Path
from urllib.parse import urlsplit

import bcrypt
import trustme

from llm_serving_exporter.web.server import WebServer
from tests.support.waiting import PATIENCE_SECONDS

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
