"""A target's URL: what is allowed in it, its normal form, and the name that follows from it."""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import SplitResult, urlsplit

from llm_serving_exporter.model.own_host import is_own_host
from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.schema.kinds import URL_PATH, Kind
from llm_serving_exporter.schema.problems import InvalidValueError, shown

_DEFAULT_PORTS = {"http": 80, "https": 443}
# host names as resolvers take them: letters, digits, hyphens, dots, and the underscore of container networks
_HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9_.])?")
_EXAMPLE = "Write one such as http://localhost:8000."


class Address(Struct, frozen=True):
    """Where a server listens."""

    # http or https
    scheme: str
    # lower case, without brackets
    host: str
    port: int  # the scheme's own where the URL has none
    # of the URL, None where it has none
    path: str | None

    @property
    def url(self) -> str:
        """`http://host:8000`: the port always stands, IPv6 in brackets."""
        return f"{self.scheme}://{_bracketed(self.host)}:{self.port}"

    def is_local(self, host_name: str) -> bool:
        """Whether the server runs on the exporter's own host, whose name is `host_name`."""
        return is_own_host(self.host, host_name)

    def name(self, host_name: str) -> str:
        """host:port, with the own host name for a local server: two sidecars never share an identity."""
        host = host_name if self.is_local(host_name) else self.host
        return f"{_bracketed(host)}:{self.port}"


def encode_host(host: str) -> str | bytes:
    """What `getaddrinfo` is to be asked: of text, even of ASCII, it would load Python's tables of Unicode for domain names (0.3 MB).

    A name that needs them, or has an empty or too long label, stays text: then it raises UnicodeError for what is none.
    """
    # as its codec takes ASCII for what it is (RFC 3490, 4.1)
    plain = host.isascii() and all(0 < len(label) < 64 for label in host.removesuffix(".").split("."))
    return host.encode("ascii") if plain else host


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def parse_url(text: str) -> Address:
    """The address that a URL names; `host:port` alone means http.

    Raises `InvalidValueError`. Its message never shows a URL that may hold a secret (credentials, query).
    """
    url = text.strip()
    if "@" in url:
        raise InvalidValueError(
            "the URL holds a user name or password",
            "Remove it and set auth: {basic: {username: …, password_file: …}} for the target in the file.",
        )
    if "?" in url or "#" in url:
        raise InvalidValueError(
            "the URL holds a query (?) or a fragment (#)",
            "Remove it; a token belongs in auth: {bearer_token_file: …} or headers.",
        )
    # of all that is white space only this one counts as printable
    if not url or " " in url or not url.isprintable():
        raise InvalidValueError(f"{shown(text)} is not a URL", _EXAMPLE)
    scheme, separator, _ = url.partition("://")
    if not separator:
        url = f"http://{url}"
    elif scheme.lower() not in _DEFAULT_PORTS:
        raise InvalidValueError(f"{shown(text)} has the scheme {shown(scheme)}", "Only http and https can be read.")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise InvalidValueError(f"{shown(text)} has no valid host and port", _EXAMPLE) from None
    if port == 0:
        raise InvalidValueError(f"{shown(text)} has the port 0", _EXAMPLE)
    if port is None:
        if not separator or parts.netloc.endswith(":"):
            raise InvalidValueError(f"{shown(text)} names no port", _EXAMPLE)
        port = _DEFAULT_PORTS[parts.scheme]
    return Address(parts.scheme, _host(parts, text), port, _path(parts))


URL = Kind("a URL such as http://localhost:9400", parse_url, is_text=True)


def _host(parts: SplitResult, text: str) -> str:
    host = parts.hostname or ""
    if "[" in parts.netloc:
        try:
            return str(ipaddress.IPv6Address(host))
        except ValueError:
            raise InvalidValueError(f"{shown(text)} holds no valid IPv6 address in its brackets", _EXAMPLE) from None
    if not _HOST.fullmatch(host):
        raise InvalidValueError(f"{shown(text)} names no valid host", _EXAMPLE)
    return host


def _path(parts: SplitResult) -> str | None:
    return URL_PATH.parse(parts.path) if parts.path not in ("", "/") else None
