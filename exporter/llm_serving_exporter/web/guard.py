"""Who is let in: TLS and basic auth by the web config file as it stands now.

The file, certificate, key and CA are looked at (one stat each) for every connection and request, as the exporter-toolkit
reads them, and reloaded when one of them changed. What cannot be used changes nothing and is logged once.
"""

from __future__ import annotations

import base64
import binascii
import calendar
import hashlib
import hmac
import ipaddress
import logging
import secrets
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from llm_serving_exporter.errors import ConfigError, Problem
from llm_serving_exporter.files.watched import Watched
from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.web.exchange import Request, plain
from llm_serving_exporter.web.webconfig import (
    VERIFY_OPTIONAL,
    VERIFY_REQUIRED,
    TlsSettings,
    WebSettings,
    load_web_config,
)

# --- Names and passwords. Slow once for each pair of them, and the same for names unknown.

# results kept of each kind; bcrypt takes 50 ms and more
MOST_RESULTS = 64
# bcrypt reads no more of a password; the library refuses a longer one, where the toolkit's hashes were cut
BCRYPT_BYTES = 72


def credentials(header: str) -> tuple[str, bytes] | None:
    """Name and password of an Authorization header; None where there are none that can be read."""
    scheme, _, encoded = header.strip().partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        # the header was read as Latin-1, which no base64 text leaves
        name, colon, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
        return (name.decode(), password) if colon else None
    except (binascii.Error, ValueError):
        return None


class PasswordCheck:
    """Compares passwords with hashes. Results are kept under a keyed digest, so that no password stays in memory."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._results: dict[bool, dict[bytes, None]] = {True: {}, False: {}}
        self._lock = threading.Lock()

    def allows(self, users: Mapping[str, str], name: str, password: bytes) -> bool:
        """Whether the name is known and the password is its own. `users`: name -> bcrypt hash, not empty."""
        expected = _choose_hash(users, name)
        digest = self._digest(name, expected, password)
        known = self._known(digest)
        if known is None:
            known = _matches(password, expected) and name in users
            self._keep(digest, allowed=known)
        return known

    def recall(self, users: Mapping[str, str], name: str, password: bytes) -> bool | None:
        """The same where it is known already; None where it has to be computed."""
        return self._known(self._digest(name, _choose_hash(users, name), password))

    def _digest(self, *parts: str | bytes) -> bytes:
        whole = hmac.new(self._key, digestmod=hashlib.sha256)
        for part in parts:
            content = part.encode() if isinstance(part, str) else part
            whole.update(len(content).to_bytes(8, "big") + content)
        return whole.digest()

    def _known(self, digest: bytes) -> bool | None:
        with self._lock:
            return next((allowed for allowed, digests in self._results.items() if digest in digests), None)

    def _keep(self, digest: bytes, *, allowed: bool) -> None:
        # apart, so that wrong passwords push no right one out
        with self._lock:
            digests = self._results[allowed]
            if len(digests) >= MOST_RESULTS:
                del digests[next(iter(digests))]
            digests[digest] = None


def _choose_hash(users: Mapping[str, str], name: str) -> str:
    # an unknown name costs what the slowest known one does, so that time does not tell names apart
    return users.get(name) or max(users.values(), key=lambda text: text[4:6])


def _matches(password: bytes, expected: str) -> bool:
    import bcrypt  # only where basic auth is on

    try:
        return bcrypt.checkpw(password[:BCRYPT_BYTES], expected.encode())
    except ValueError:  # a NUL byte in the password (bcrypt before 4.2), or a hash that only looks like one
        return False


# --- Until when a certificate is valid: the standard library reads that of a peer's certificate only, and not of one's own.

_VERSION, _UTC_TIME = 0xA0, 0x17
# two digits of the year: below 50 they are of this century (RFC 5280, section 4.1.2.5.1)
_CENTURY_FROM = 50


class _Field(NamedTuple):
    tag: int  # what it is
    content: bytes  # may be made of fields itself
    rest: bytes  # what follows it


def read_expiry(pem: str) -> float | None:
    """When the first certificate of a PEM text expires, in Unix seconds; None where there is none that can be read."""
    begin, end = pem.find(ssl.PEM_HEADER), pem.find(ssl.PEM_FOOTER)
    if begin < 0 or end < begin:
        return None
    try:
        body = _read_field(ssl.PEM_cert_to_DER_cert(pem[begin : end + len(ssl.PEM_FOOTER)])).content
        fields = _read_field(body).content  # TBSCertificate: RFC 5280, section 4.1
        if fields[:1] == bytes([_VERSION]):
            fields = _read_field(fields).rest
        for _ in ("serial number", "signature algorithm", "issuer"):
            fields = _read_field(fields).rest
        return _read_time(_read_field(_read_field(_read_field(fields).content).rest))
    except (ValueError, IndexError):
        return None


def _read_field(data: bytes) -> _Field:
    """The first field of DER data. Raises IndexError and ValueError for what is none."""
    tag, length, at = data[0], data[1], 2
    if length & 0x80:
        at += length & 0x7F
        length = int.from_bytes(data[2:at], "big")
    if at + length > len(data):
        raise ValueError("a field is longer than what holds it")
    return _Field(tag, data[at : at + length], data[at + length :])


def _read_time(field: _Field) -> float:
    text = field.content.decode("ascii")
    if field.tag == _UTC_TIME:
        text = ("20" if int(text[:2]) < _CENTURY_FROM else "19") + text
    return float(calendar.timegm(time.strptime(text, "%Y%m%d%H%M%SZ")))


# --- The web config file in use.

_VERIFY = {VERIFY_OPTIONAL: ssl.CERT_OPTIONAL, VERIFY_REQUIRED: ssl.CERT_REQUIRED}
_VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
# how long before its end a certificate is warned of
WARNED_BEFORE_SECONDS = 14 * 86_400.0
_DAY_SECONDS = 86_400.0
_MOST_PEM_CHARACTERS = 1_000_000
_CHALLENGE = ("WWW-Authenticate", 'Basic realm="llm-serving-exporter", charset="UTF-8"')
DENIED = plain(401, "Unauthorized: send a name and password by basic authentication.", _CHALLENGE)


class _Loaded(Struct, frozen=True):
    settings: WebSettings  # as the file stands in use
    context: ssl.SSLContext | None  # None = plain HTTP
    expiry: float | None  # of the certificate, in Unix seconds; None: none, or not known


class Guard:
    """Live settings of one web config file. Raises ConfigError when it is made and the file cannot be used.

    Whether TLS is on is settled when it is made: a change of that needs a restart, which is logged.
    """

    def __init__(self, path: str, log: logging.Logger, wall: Callable[[], float] = time.time) -> None:
        self._path, self._log, self._wall = path, log, wall
        # when it was last said that the certificate expires
        self._warned_at: float | None = None
        self._lock = threading.Lock()
        self._check = PasswordCheck()
        self._file: Watched[_Loaded | None] = Watched(path, self._load, None)
        self._file.reread()
        if self._file.problem is not None:
            raise self._file.problem
        self.tls = self._file.value is not None and self._file.value.context is not None

    def context(self) -> ssl.SSLContext:
        """For the next handshake. Only where `tls`."""
        loaded = self._current()
        assert loaded.context is not None
        self._warn_of_expiry(loaded.expiry)
        return loaded.context

    @property
    def expiry(self) -> float | None:
        """When the certificate expires, in Unix seconds; None where there is none, or it cannot be told."""
        return self._current().expiry

    def headers(self) -> tuple[tuple[str, str], ...]:
        """What every answer carries; an empty value means that a header is not sent."""
        return self._current().settings.headers

    def lets_in(self, secured: ssl.SSLSocket) -> bool:
        """Whether the client's verified certificate bears one of the allowed names, where any are set."""
        tls = self._current().settings.tls
        if tls is None or not tls.client_allowed_sans:
            return True
        certificate = secured.getpeercert() or {}
        # (kind, name) pairs; a directory name, which nobody can list, is a deeper tuple
        found = [pair[1] for pair in certificate.get("subjectAltName", ()) if len(pair) == 2]
        names = {_canonical(name) for name in found if isinstance(name, str)}
        return not names.isdisjoint(map(_canonical, tls.client_allowed_sans))

    def judge(self, request: Request) -> bool | None:
        """Whether the request may pass, by its name and password; None where these have to be checked first, which takes a while."""
        users = self._current().settings.users
        if not users:
            return True
        sent = credentials(request.headers.get("authorization", ""))
        return False if sent is None else self._check.recall(users, *sent)

    def check_password(self, request: Request) -> bool:
        """The same, after the check."""
        users = self._current().settings.users
        sent = credentials(request.headers.get("authorization", ""))
        return not users or (sent is not None and self._check.allows(users, *sent))

    def remembers(self, request: Request) -> bool:
        """Whether a name and password were right before, by the file as it was then. They are judged again all the same."""
        users = self._file.value.settings.users if self._file.value is not None else {}
        sent = credentials(request.headers.get("authorization", ""))
        return bool(users) and sent is not None and self._check.recall(users, *sent) is True

    def _current(self) -> _Loaded:
        with self._lock:
            if self._file.refresh():
                self._report()
            assert self._file.value is not None  # else the guard would not have been made
            return self._file.value

    def _report(self) -> None:
        if self._file.problem is None:
            self._log.info("web config file reloaded")
        else:
            self._log.error(
                "the web config file was not reloaded, what was loaded before stays: %s", self._file.problem
            )

    def _load(self) -> _Loaded:
        settings = load_web_config(self._path)
        tls = settings.tls
        if self._file.value is not None and (tls is not None) != self.tls:
            what = "TLS cannot be switched on or off while the exporter runs"
            raise ConfigError(Problem(self._path, "tls_server_config", what, "Restart the exporter."))
        if tls is None:
            return _Loaded(settings, None, None)
        for file in (tls.cert_file, tls.key_file, tls.client_ca_file):
            if file is not None:
                self._file.watch(file)
        context = _make_context(self._path, tls)
        with open(tls.cert_file, encoding="ascii", errors="replace") as pem:
            expiry = read_expiry(pem.read(_MOST_PEM_CHARACTERS))
        self._warned_at = None
        self._warn_of_expiry(expiry)
        return _Loaded(settings, context, expiry)

    def _warn_of_expiry(self, expiry: float | None) -> None:
        """Says once a day that the certificate expires soon, or has expired."""
        now = self._wall()
        if expiry is None or expiry - now > WARNED_BEFORE_SECONDS:
            return
        if self._warned_at is not None and abs(now - self._warned_at) < _DAY_SECONDS:
            return
        self._warned_at = now
        days = (expiry - now) / _DAY_SECONDS
        when = datetime.fromtimestamp(expiry, UTC).strftime("%Y-%m-%d %H:%M UTC")
        said = (
            f"expires in {days:.1f} days, at {when}"
            if days > 0
            else f"expired at {when}: clients that check it are not served"
        )
        self._log.warning("the certificate of the web server %s. Replace its file; it is read again by itself.", said)


def _canonical(name: str) -> str:
    """An IP address in its one short form (OpenSSL writes IPv6 in full), anything else as it is."""
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        return name


def _make_context(file: str, tls: TlsSettings) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version, context.maximum_version = _VERSIONS[tls.min_version], _VERSIONS[tls.max_version]
    context.set_alpn_protocols(["http/1.1"])
    section = "tls_server_config"
    try:
        # without a password function OpenSSL would ask on the terminal, and wait
        context.load_cert_chain(tls.cert_file, tls.key_file, password=lambda: "")
    except OSError as error:
        raise _unusable(file, f"{section}.cert_file", f"{tls.cert_file} with {tls.key_file}", error) from error
    if tls.client_ca_file is not None:
        context.verify_mode = _VERIFY[tls.client_auth_type]
        try:
            context.load_verify_locations(tls.client_ca_file)
        except OSError as error:
            raise _unusable(file, f"{section}.client_ca_file", tls.client_ca_file, error) from error
    return context


def _unusable(file: str, path: str, what: str, error: OSError) -> ConfigError:
    if isinstance(error, ssl.SSLError):
        fix = "Files must be PEM, the key must fit its certificate and have no passphrase."
        return ConfigError(Problem(file, path, f"{what} cannot be used ({error.reason or 'not PEM'})", fix))
    return ConfigError(
        Problem(file, path, f"{what} cannot be read: {error.strerror}", "Check the paths and permissions.")
    )
