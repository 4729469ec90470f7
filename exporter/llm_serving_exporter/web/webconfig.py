"""The exporter-toolkit web config file -> what of it this server honours; everything else is refused.

Format: https://github.com/prometheus/exporter-toolkit/blob/master/docs/web-configuration.md
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from llm_serving_exporter.errors import ConfigError
from llm_serving_exporter.model.record import Struct, field
from llm_serving_exporter.settings import kinds
from llm_serving_exporter.settings.document import read_document
from llm_serving_exporter.settings.keys import (
    free_mapping,
    is_empty,
    key,
    keys_of,
    list_reader,
    mapping,
    names_of,
    read_keys,
    value,
)
from llm_serving_exporter.settings.kinds import Kind
from llm_serving_exporter.settings.problems import InvalidValueError, Node, Place, Scalar, listed

# 18 takes seconds on today's machines, and every step doubles it
HIGHEST_BCRYPT_COST = 18
_BCRYPT = re.compile(r"\$2[abxy]?\$([0-9]{2})\$[./A-Za-z0-9]{53}")

VERIFY_OPTIONAL, VERIFY_REQUIRED, NO_CLIENT_CERT = (
    "VerifyClientCertIfGiven",
    "RequireAndVerifyClientCert",
    "NoClientCert",
)
_CLIENT_AUTH = (NO_CLIENT_CERT, VERIFY_OPTIONAL, VERIFY_REQUIRED)
_VERSIONS = ("TLS12", "TLS13")
# header -> the values that it may have; None = any
_HEADERS: Mapping[str, tuple[str, ...] | None] = {
    "Content-Security-Policy": None,
    "X-Frame-Options": ("deny", "sameorigin"),
    "X-Content-Type-Options": ("nosniff",),
    "X-XSS-Protection": None,
    "Strict-Transport-Security": None,
}

_INLINE = "Write the PEM text into a file and name that: {}."
_TLS_REFUSED = {
    "cert": _INLINE.format("cert_file"),
    "key": _INLINE.format("key_file"),
    "client_ca": _INLINE.format("client_ca_file"),
    "cipher_suites": "Remove it: Go's names of suites mean nothing to OpenSSL, whose defaults apply; min_version: TLS13 is the strictest.",
    "prefer_server_cipher_suites": "Remove it: there are no cipher_suites whose order could be preferred.",
    "curve_preferences": "Remove it: OpenSSL's default curves apply.",
}
_REFUSED = {
    "rate_limit": "Remove it: this exporter limits connections, not requests; a proxy in front can limit those."
}


def _version(text: str) -> str:
    if text in ("TLS10", "TLS11"):
        raise InvalidValueError(f"{text} is not secure and not offered", "Write TLS12 or TLS13.")
    return kinds.choice("TLS version", _VERSIONS).parse(text)


_VERSION = Kind("TLS12 or TLS13", _version)


def _client_auth(text: str) -> str:
    if text in ("RequestClientCert", "RequireAnyClientCert"):
        raise InvalidValueError(
            f"{text} would take a certificate that nobody has verified, which this server cannot do",
            f"Write {VERIFY_REQUIRED} or {VERIFY_OPTIONAL}.",
        )
    return kinds.choice("client authentication", _CLIENT_AUTH).parse(text)


_CLIENT_AUTH_TYPE = Kind("a word", _client_auth)


def _read_pem_file(node: Node, place: Place, folder: Path) -> str | None:
    """The path of a PEM file; a relative one starts at the web config file's folder."""
    found = value(node, place, kinds.PATH)
    return None if found is None else str(folder / found)


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """`tls_server_config:`. Paths are absolute or relative to the working directory, no longer to the file."""

    cert_file: str = key(_read_pem_file, required=True)  # the server's certificate, with its chain
    key_file: str = key(_read_pem_file, required=True)  # its key
    # whether clients need a certificate, in exporter-toolkit's words
    client_auth_type: str = key(_CLIENT_AUTH_TYPE, default=NO_CLIENT_CERT)
    client_ca_file: str | None = key(_read_pem_file)  # the CAs that client certificates are verified with
    # () = any certificate that verifies
    client_allowed_sans: tuple[str, ...] = key(list_reader(kinds.text("name"), "names"), unset=())
    min_version: str = key(_VERSION, default="TLS12")  # lowest TLS version
    max_version: str = key(_VERSION, default="TLS13")  # highest TLS version


class WebSettings(Struct, frozen=True):
    """What the web server takes from its web config file."""

    # None = plain HTTP
    tls: TlsSettings | None = None
    # name -> bcrypt hash; {} = no authentication
    users: Mapping[str, str] = field(default_factory=dict)
    # sent with every answer
    headers: tuple[tuple[str, str], ...] = ()


def load_web_config(path: str) -> WebSettings:
    """Reads and checks a web config file. Raises ConfigError with every problem found; no message shows a hash."""
    place = Place(path, "", [])
    root = mapping(
        read_document(path, place), place, ("tls_server_config", "basic_auth_users", "http_server_config"), _REFUSED
    )
    if not root and not place.problems:
        # a half-written file looks like this: the exporter would be open where it was meant to be protected
        place.refuse(
            "the file sets nothing", "Write tls_server_config or basic_auth_users, or start without --web.config.file."
        )
    tls = None
    if "tls_server_config" in root:
        tls = _read_tls(root["tls_server_config"], place.key("tls_server_config"), Path(path).parent)
    settings = WebSettings(
        tls,
        _read_users(root.get("basic_auth_users"), place.key("basic_auth_users")),
        _read_headers(root.get("http_server_config"), place.key("http_server_config")),
    )
    if place.problems:
        raise ConfigError(*place.problems)
    return settings


def _read_tls(node: Node, place: Place, folder: Path) -> TlsSettings | None:
    keys = keys_of(TlsSettings)
    section = mapping(node, place, names_of(keys), _TLS_REFUSED)
    before = len(place.problems)
    found = read_keys(keys, section, place, folder)
    for one in keys.values():
        if one.required and one.name not in section:
            place.key(one.name).refuse("is missing", f"Write {one.name}: and the path of a PEM file.")
    if len(place.problems) > before:
        return None
    settings = TlsSettings(**found)
    _refuse_together(settings, place)
    return settings if len(place.problems) == before else None


def _refuse_together(settings: TlsSettings, place: Place) -> None:
    if settings.min_version > settings.max_version:
        place.key("min_version").refuse("is above max_version", "Remove max_version.")
    if settings.client_auth_type == NO_CLIENT_CERT:
        if settings.client_ca_file is not None:
            place.key("client_ca_file").refuse(
                "has no effect with NoClientCert", f"Write client_auth_type: {VERIFY_REQUIRED}."
            )
    elif settings.client_ca_file is None:
        what = f"is missing: {settings.client_auth_type} needs the CA whose certificates are believed"
        place.key("client_ca_file").refuse(what, "Write client_ca_file: and the path of a PEM file.")
    if settings.client_allowed_sans and settings.client_auth_type != VERIFY_REQUIRED:
        what = f"needs clients with a certificate, and {settings.client_auth_type} lets others in"
        place.key("client_allowed_sans").refuse(what, f"Write client_auth_type: {VERIFY_REQUIRED}.")


def _read_users(node: Node | None, place: Place) -> dict[str, str]:
    users: dict[str, str] = {}
    if node is None:
        return users
    if node == {} or is_empty(node):
        place.refuse("no user is listed, which would let everyone in", "List one, as NAME: HASH, or remove the key.")
        return users
    hashes = free_mapping(node, place, "Write one user a line, indented.", form="(name: hash)")
    for name, content in hashes.items():
        # the place names the user, never the value after the colon
        at = place.key(name)
        found = content.text if isinstance(content, Scalar) and content.kind == "text" else ""
        match = _BCRYPT.fullmatch(found)
        if not name or ":" in name:
            at.refuse("this name cannot be sent: it is empty or has a colon", "Choose another.")
        elif match is None:
            at.refuse("this is not a bcrypt hash", "Make one with: htpasswd -nBC 10 NAME")
        elif not 4 <= int(match[1]) <= HIGHEST_BCRYPT_COST:
            at.refuse(
                f"the hash's cost of {int(match[1])} is outside 4 to {HIGHEST_BCRYPT_COST}",
                "Make one with: htpasswd -nBC 10 NAME",
            )
        else:
            users[name] = found
    return users


def _read_headers(node: Node | None, place: Place) -> tuple[tuple[str, str], ...]:
    section = mapping(node, place, ("http2", "headers"))
    if value(section.get("http2"), place.key("http2"), kinds.BOOLEAN):
        place.key("http2").refuse("this server speaks HTTP/1.1 only", "Write false, or remove the line.")
    at = place.key("headers")
    found = []
    for name, content in mapping(section.get("headers"), at, tuple(_HEADERS)).items():
        text = value(content, at.key(name), Kind("a header's value", _header_value, is_text=True))
        allowed = _HEADERS[name]
        if text and allowed is not None and text.lower() not in allowed:
            at.key(name).refuse(f"must be {listed(allowed)}")
        elif text is not None:
            found.append((name, text))
    return tuple(found)


def _header_value(text: str) -> str:
    if not re.fullmatch(r"[\x20-\x7e]*", text):
        raise InvalidValueError("a header's value may hold printable ASCII characters only", "Write it in one line.")
    return text
