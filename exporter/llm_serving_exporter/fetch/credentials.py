"""Settings -> request header block and TLS context. Each secret is checked before each use, and read again only when it changed."""

from __future__ import annotations

import base64
import os
import re
import ssl
from collections.abc import Callable
from functools import lru_cache, partial
from stat import S_ISREG

from llm_serving_exporter.errors import ConfigError, Problem
from llm_serving_exporter.fetch.waits import ScrapeError
from llm_serving_exporter.files.watched import Stamp, Watched, stamp_file
from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.model.sample import FailureReason
from llm_serving_exporter.model.target import HttpSettings, Secret
from llm_serving_exporter.model.text import Masker

# --- The request header block.


# Servers refuse request headers beyond 8 to 64 KiB (nginx 8, uvicorn 64), so a longer secret is a wrong file.
MAX_SECRET_BYTES = 16 * 1024

# Headers that decide how the answer is framed or read: a user's value would break the exchange.
_OURS = frozenset({"accept", "accept-encoding", "connection", "content-length", "expect", "te", "transfer-encoding"})
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, 5.6.2: token
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def stamp_regular_file(path: str, what: str) -> Stamp:
    """The stamp of a credentials file. `what`: the setting that names it, for the message.

    Raises ScrapeError (CREDENTIALS) for a file that is missing, out of reach or not regular (a FIFO would block the read for
    ever).
    """
    try:
        stamp = stamp_file(path)
    except (OSError, ValueError) as error:
        raise unreadable_error(path, what, error) from error
    if not S_ISREG(stamp.mode):
        raise ScrapeError(FailureReason.CREDENTIALS, f"{what} {path} is not a regular file; name the file itself")
    return stamp


def unreadable_error(path: str, what: str, error: Exception) -> ScrapeError:
    """The failure for a file that cannot be read. The message has the system's reason and never the content."""
    cause = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
    detail = f"{what} {path} cannot be read: {cause}; check the path and that this process's user may read it"
    return ScrapeError(FailureReason.CREDENTIALS, detail)


class _FileSecret:
    """The secret in a file, without its trailing newline; read again when the file changes."""

    def __init__(self, path: str, what: str) -> None:
        self._path = path
        self._what = f"{what} file"
        self._file = Watched(path, self._read, "")

    def __call__(self) -> str:
        # no request is sent with a secret that its file no longer holds, so here the last good value does not stand in
        if self._file.problem is None:
            self._file.refresh()
        else:  # a failure such as too many open files passes although the file stays as it is
            self._file.reread()
        if self._file.problem is not None:
            raise self._file.problem
        return self._file.value

    def _read(self) -> str:
        stamp_regular_file(self._path, self._what)
        try:
            with open(self._path, "rb") as file:
                raw = file.read(MAX_SECRET_BYTES + 1)
        except OSError as error:
            raise unreadable_error(self._path, self._what, error) from error
        where = f"{self._what} {self._path}"
        if len(raw) > MAX_SECRET_BYTES:
            raise ScrapeError(FailureReason.CREDENTIALS, f"{where} exceeds 16 KiB; is it the right file?")
        try:
            value = raw.decode()
        except UnicodeDecodeError:
            raise ScrapeError(FailureReason.CREDENTIALS, f"{where} is not UTF-8 text; is it the right file?") from None
        return _check_secret(value.rstrip("\r\n"), where)


def _read_variable(name: str, where: str) -> str:
    """The secret in an environment variable, without a trailing newline."""
    value = os.environ.get(name)
    if value is None:
        raise ScrapeError(FailureReason.CREDENTIALS, f"{where} is not set in this process's environment")
    return _check_secret(value.rstrip("\r\n"), where)


def _check_secret(value: str, where: str) -> str:
    if not value.strip():
        raise ScrapeError(FailureReason.CREDENTIALS, f"{where} is empty")
    if _CONTROL.search(value):
        raise ScrapeError(FailureReason.CREDENTIALS, f"{where} contains control characters; it must be one line")
    return value


def _make_secret_field(name: str, what: str, secret: Secret, render: Callable[[str], str]) -> _Field:
    if secret.file is not None and secret.env is None:
        return _Field(name, f"{what} file {secret.file}", _FileSecret(secret.file, what), render)
    if secret.env is not None and secret.file is None:
        where = f"{what} variable {secret.env}"
        return _Field(name, where, partial(_read_variable, secret.env, where), render)
    raise _config_error(what, "a secret needs exactly one of file and env", "Set one of the two.")


def _config_error(path: str, what: str, fix: str) -> ConfigError:
    return ConfigError(Problem("target", path, what, fix))


class _Field(Struct, frozen=True):
    """A header that the user configured."""

    name: str  # as it is sent
    where: str  # the setting and its file or variable, for messages
    read: Callable[[], str]  # the secret or the literal as it is now; raises ScrapeError (CREDENTIALS)
    render: Callable[[str], str]  # what `read` returned -> the header's value
    is_secret: bool = True  # whether nobody may see what `read` returns


class RequestHeaders:
    """The header lines that every request to one server has in common, with authentication.

    Raises ConfigError where the settings contradict each other. For a value that cannot be used now, such as a missing
    file, `render_block` raises ScrapeError (CREDENTIALS), because the value may be right at the next attempt.
    """

    def __init__(
        self, settings: HttpSettings, host: str, user_agent: str, own: tuple[tuple[str, str], ...] = ()
    ) -> None:
        self._fields = _list_user_fields(settings)
        named = {field.name.lower() for field in self._fields}
        # A user's own Host or User-Agent replaces ours; Accept-Encoding and the rest cannot be replaced.
        self._fixed = "".join(
            f"{name}: {value}\r\n"
            for name, value in (("Host", host), ("User-Agent", user_agent), ("Accept-Encoding", "gzip"), *own)
            if name.lower() not in named
        )
        self._values: list[str] | None = None
        # of everything that a user configured, and of the secrets alone: a tenant's name may stand on a page
        self._sent, self._secrets = Masker(()), Masker(())
        self._block = b""

    @property
    def credential_settings(self) -> str:
        """The settings that carry credentials, for the message about a 401; "" where there are none."""
        return ", ".join(field.where for field in self._fields)

    def render_block(self) -> bytes:
        """All header lines except Accept, with the blank line after them. The same object while no secret changes."""
        values = [field.read() for field in self._fields]
        if values != self._values:
            rendered = [field.render(value) for field, value in zip(self._fields, values, strict=True)]
            texts = [
                (field, (value, text, text.rpartition(" ")[2]))
                for field, value, text in zip(self._fields, values, rendered, strict=True)
            ]
            self._sent = Masker(text for _, forms in texts for text in forms)
            self._secrets = Masker(text for field, forms in texts if field.is_secret for text in forms)
            lines = "".join(
                f"{field.name}: {_check_header_value(value, field.where)}\r\n"
                for field, value in zip(self._fields, rendered, strict=True)
            )
            self._block = f"{self._fixed}{lines}\r\n".encode("ascii")
            self._values = values
        return self._block

    def redact(self, text: str) -> str:
        """A message with everything masked that was configured to be sent, because an error page may repeat the request."""
        return self._sent.mask_text(text)

    def redact_body(self, body: bytes) -> bytes:
        """A page or document with every secret masked that its server repeats in it: in a label, say."""
        return self._secrets.mask_body(body)


def _check_header_value(value: str, where: str) -> str:
    if not value.isascii():
        raise ScrapeError(FailureReason.CREDENTIALS, f"{where} contains characters that no HTTP header may carry")
    return _check_secret(value, where)


def _list_user_fields(settings: HttpSettings) -> list[_Field]:
    fields: list[_Field] = []
    if settings.bearer_token is not None:
        fields.append(_make_secret_field("Authorization", "bearer_token", settings.bearer_token, "Bearer {}".format))
    if settings.basic_username is not None:
        fields.append(_make_basic_field(settings.basic_username, settings.basic_password))
    elif settings.basic_password is not None:
        raise _config_error("basic_password", "a password without a user", "Set basic_username too.")
    for name, value in settings.headers:
        where = f"headers.{name}"
        if not _HEADER_NAME.fullmatch(name):
            raise _config_error("headers", "a header name with characters that HTTP forbids", "Use letters and '-'.")
        if name.lower() in _OURS:
            raise _config_error(where, "this header is the exporter's own", "Remove it.")
        if isinstance(value, str):
            fields.append(_make_literal_field(name, where, value, str))
        else:
            fields.append(_make_secret_field(name, where, value, str))
    names = [field.name.lower() for field in fields]
    for name in names:
        if names.count(name) > 1:
            raise _config_error("headers", f"the header {name} would be sent twice", "Keep one of the settings.")
    return fields


def _make_basic_field(username: str, password: Secret | None) -> _Field:
    if ":" in username or _CONTROL.search(username):  # RFC 7617, 2
        raise _config_error("basic_username", "it contains a colon or control characters", "Basic auth forbids both.")

    def render(value: str) -> str:
        return "Basic " + base64.b64encode(f"{username}:{value}".encode()).decode("ascii")

    if password is None:
        return _make_literal_field("Authorization", "basic_username", "", render)
    return _make_secret_field("Authorization", "basic_username and basic_password", password, render)


def _make_literal_field(name: str, where: str, value: str, render: Callable[[str], str]) -> _Field:
    return _Field(name, where, lambda: value, render, is_secret=False)


# --- Settings -> TLS context, rebuilt when a certificate file changes on disk.


def make_client_context(settings: HttpSettings) -> ssl.SSLContext:
    """The context for one server: the same object until one of the files changes.

    Without `ca_file` the system's trust store decides. Raises ScrapeError (CREDENTIALS) for a file that cannot be
    read, or that is not a certificate or key in PEM form.
    """
    ca_file, cert_file, key_file = settings.ca_file, settings.cert_file, settings.key_file
    files = (("ca_file", ca_file), ("cert_file", cert_file), ("key_file", key_file))
    stamps = tuple(None if path is None else stamp_regular_file(path, what) for what, path in files)
    return _build_context(ca_file, cert_file, key_file, settings.insecure_skip_verify, stamps)


# A context holds the whole trust store (about 1 MB with the system's), so targets with equal settings share one. The
# stamps are part of the key: a rotated file makes a new context, and the cache's bound lets the old one go.
@lru_cache(maxsize=32)
def _build_context(
    ca_file: str | None,
    cert_file: str | None,
    key_file: str | None,
    insecure_skip_verify: bool,
    stamps: tuple[Stamp | None, ...],
) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except ssl.SSLError as error:
        raise _not_pem_error("ca_file", ca_file, error) from error
    except OSError as error:
        raise unreadable_error(str(ca_file), "ca_file", error) from error
    if insecure_skip_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if cert_file is not None:
        try:
            # Without a password function OpenSSL would ask on the terminal, and wait.
            context.load_cert_chain(cert_file, key_file, password=lambda: "")
        except ssl.SSLError as error:
            raise _not_pem_error("cert_file and key_file", f"{cert_file}, {key_file or cert_file}", error) from error
        except OSError as error:
            raise unreadable_error(f"{cert_file}, {key_file or cert_file}", "cert_file and key_file", error) from error
    return context


def _not_pem_error(what: str, paths: str | None, error: ssl.SSLError) -> ScrapeError:
    remedy = "it must be PEM, a key must fit its certificate and have no passphrase"
    detail = f"{what} {paths} cannot be used ({error.reason or 'unknown format'}); {remedy}"
    return ScrapeError(FailureReason.CREDENTIALS, detail)
