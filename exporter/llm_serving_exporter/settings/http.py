"""How a server is asked: credentials (named, never held), headers, TLS; and whose credentials go where."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from llm_serving_exporter.model.record import Struct, replace
from llm_serving_exporter.model.target import HttpSettings, Secret
from llm_serving_exporter.settings import kinds
from llm_serving_exporter.settings.keys import Members, Section, free_mapping, is_empty, key, keys_of, mapping, value
from llm_serving_exporter.settings.options import Context
from llm_serving_exporter.settings.problems import Node, Place, Scalar

_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, token
_SECRET_HEADERS = frozenset(
    {"authorization", "proxy-authorization", "cookie", "x-api-key", "api-key", "apikey", "x-auth-token"}
)
# what the HTTP client decides for each exchange
_OWN_HEADERS = frozenset(
    {"host", "connection", "content-length", "transfer-encoding", "accept-encoding", "te", "trailer", "upgrade"}
)
_ENV_KIND = kinds.text("name of an environment variable")
_HEADER_VALUE = kinds.text("header value", 4096)
_USERNAME = kinds.text("user name")
_SERVER_NAME = kinds.text("server name", 253)
AUTH_KEYS = ("bearer_token_file", "bearer_token_env", "basic")
NO_SECRETS = "The file must not hold secrets: write"
# what users of Prometheus would write
PROMETHEUS_HINTS = {
    "bearer_token_file": "Write it below auth: auth: {bearer_token_file: …}.",
    "authorization": "Write auth: {bearer_token_file: …} or auth: {bearer_token_env: …}.",
    "basic_auth": "Write auth: {basic: {username: …, password_file: …}}.",
    "tls_config": "Write tls: {ca_file: …}.",
}
_AUTH_HINTS = {
    **dict.fromkeys(("bearer_token", "token", "credentials"), f"{NO_SECRETS} bearer_token_file or bearer_token_env."),
    "password": f"{NO_SECRETS} password_file or password_env below basic.",
    "username": "Write it below basic: auth: {basic: {username: …, password_file: …}}.",
}
_BASIC_HINTS = {"password": f"{NO_SECRETS} password_file or password_env."}


class Auth(Struct, frozen=True):
    """Credentials of a target: a bearer token, or a user name with a password, or neither."""

    bearer_token: Secret | None = None  # excludes the other two
    basic_username: str | None = None  # set together with `basic_password`
    basic_password: Secret | None = None  # set together with `basic_username`


def check_file(path: str, place: Place) -> None:
    """Reports a file that does not exist or cannot be read."""
    if os.path.isdir(path):
        place.refuse(f"{path} is a folder", "Give the path of a file.")
    elif not os.path.exists(path):
        place.refuse(f"{path} does not exist", "Check the path; a relative one starts at the file that names it.")
    elif not os.access(path, os.R_OK):
        place.refuse(f"{path} cannot be read by this user", "Check its owner and permissions.")


def read_existing_path(node: Node, place: Place, context: Context) -> str | None:
    """The path of a file, made relative to the working directory; one that cannot be read is reported."""
    path = value(node, place, kinds.PATH)
    if path is None:
        return None
    check_file(context.resolve(path), place)
    return context.resolve(path)


@dataclass(frozen=True, slots=True)
class Tls:
    """How the exporter checks the server, and what it shows to it."""

    ca_file: str | None = key(read_existing_path, "The CAs that are trusted. Default: the system's.")
    cert_file: str | None = key(read_existing_path, "A client certificate. Default: none.")
    key_file: str | None = key(read_existing_path, "Its key.")
    server_name: str | None = key(_SERVER_NAME, "The name in the server's certificate. Default: the URL's host.")
    # for tests: anybody can then pass for the server
    insecure_skip_verify: bool = key(kinds.BOOLEAN, "Trust any certificate.", default="false")


def read_secret(section: Members, place: Place, file_key: str, env_key: str, context: Context) -> Secret | None:
    """The secret that `file_key` or `env_key` names; None where neither is given, or where it is reported."""
    file, env = section.value(file_key, kinds.PATH), section.value(env_key, _ENV_KIND)
    if file is not None and env is not None:
        place.refuse(f"both {file_key} and {env_key} are given", "Keep one of them.")
        return None
    if env is not None and not _VARIABLE_NAME.fullmatch(env):
        # not shown: it may be the secret itself
        what = "this is not the name of an environment variable"
        place.key(env_key).refuse(what, "Write the variable's name (letters, digits, _), not its value.")
        return None
    if env is not None:
        context.secret_variables.add(env)
        if env not in context.environ:
            place.key(env_key).refuse("the environment variable that it names is not set", "Set it, or use a file.")
        return Secret(env=env)
    if file is None:
        return None
    path = context.resolve(file)
    if not os.access(path, os.R_OK) or os.path.isdir(path):
        # no error: it is read at each scrape and may be mounted later
        context.warnings.append(f"{place.key(file_key)}: the file that it names cannot be read (yet)")
    return Secret(file=path)


def read_auth(node: Node | None, place: Place, context: Context) -> Auth | None:
    """Credentials from `auth:`; None where it is not given."""
    if is_empty(node):
        return None
    section = mapping(node, place, AUTH_KEYS, _AUTH_HINTS)
    token = read_secret(section, place, "bearer_token_file", "bearer_token_env", context)
    if "basic" not in section:
        return Auth(bearer_token=token)
    if "bearer_token_file" in section or "bearer_token_env" in section:
        fix = "Keep one of them: a request has one Authorization header."
        place.refuse("both a bearer token and basic are given", fix)
    at = place.key("basic")
    is_sound = place.watch()
    basic = mapping(section["basic"], at, ("username", "password_file", "password_env"), _BASIC_HINTS)
    username = basic.value("username", _USERNAME)
    password = read_secret(basic, at, "password_file", "password_env", context)
    if username is None and is_sound():
        at.refuse("username is missing", "Write username and password_file or password_env.")
    elif password is None and is_sound():
        at.refuse("the password is missing", "Write password_file or password_env.")
    elif username is not None and ":" in username:
        at.key("username").refuse("the user name contains a colon", "HTTP basic auth cannot carry one (RFC 7617).")
    return Auth(basic_username=username, basic_password=password)


def read_headers(node: Node, place: Place, context: Context) -> tuple[tuple[str, str | Secret], ...] | None:
    """Extra request headers; None where `headers:` is not given."""
    if is_empty(node):
        return None
    headers: dict[str, tuple[str, str | Secret]] = {}
    for name, child in free_mapping(node, place, "Known here: Name.").items():
        at = place.key(name)
        if not _HEADER_NAME.fullmatch(name):
            at.refuse("this is not the name of an HTTP header", "Write letters, digits and hyphens only.")
        elif name.lower() in _OWN_HEADERS:
            at.refuse("the exporter sets this header itself", "Remove it.")
        elif name.lower() in headers:
            at.refuse("the header is given twice", "Keep one of them; upper and lower case are the same.")
        else:
            content = _header_value(name, child, at, context)
            if content is not None:
                headers[name.lower()] = (name, content)
    return tuple(headers.values())


def _header_value(name: str, node: Node, at: Place, context: Context) -> str | Secret | None:
    if isinstance(node, dict):
        is_sound = at.watch()
        secret = read_secret(mapping(node, at, ("file", "env")), at, "file", "env", context)
        if secret is None and is_sound():
            at.refuse("neither file nor env is given", "Write {file: /path} or {env: NAME}.")
        return secret
    if isinstance(node, Scalar) and name.lower() in _SECRET_HEADERS:
        at.refuse("this header holds a secret, which the file must not hold", "Write {file: /path} or {env: NAME}.")
        return None
    content = value(node, at, _HEADER_VALUE)
    if content is not None and not content.isascii():
        at.refuse("the header value is not ASCII", "Encode it as the server expects it, for example percent-encoded.")
    return content


def read_tls(node: Node | None, place: Place, context: Context) -> Tls | None:
    """TLS settings from `tls:`, every named file readable; None where it is not given."""
    if is_empty(node):
        return None
    section = Section(keys_of(Tls), node, place, context)
    tls = Tls(**section.values)
    if "cert_file" in section.nodes and "key_file" not in section.nodes:
        place.refuse("cert_file is given without key_file", "Add key_file: a client certificate needs its key.")
    if "key_file" in section.nodes and "cert_file" not in section.nodes:
        place.refuse("key_file is given without cert_file", "Add cert_file: a key alone proves nothing.")
    if tls.insecure_skip_verify and "ca_file" in section.nodes:
        place.refuse("ca_file and insecure_skip_verify contradict each other", "Remove insecure_skip_verify.")
    return tls


@dataclass(frozen=True, slots=True)
class Access:
    """What the section of a server that is no target says of how it is asked, as for a target."""

    auth: Auth | None = key(read_auth)
    headers: tuple[tuple[str, str | Secret], ...] | None = key(read_headers)
    tls: Tls | None = key(read_tls)


# --- what carries credentials ------------------------------------------------------------------------------------------


def has_credentials(http: HttpSettings) -> bool:
    """Whether a request would carry a token, a password, a header out of a secret, or a client certificate."""
    return drop_credentials(http) != http


def sends_secret(http: HttpSettings) -> bool:
    """Whether a request would carry a secret that whoever is on the way can read where there is no TLS."""
    return has_credentials(replace(http, cert_file=None, key_file=None))


def drop_credentials(http: HttpSettings) -> HttpSettings:
    """The same way to ask a server, as nobody in particular."""
    return replace(
        http,
        bearer_token=None,
        basic_username=None,
        basic_password=None,
        headers=plain_headers(http.headers),
        cert_file=None,
        key_file=None,
    )


def plain_headers(headers: tuple[tuple[str, str | Secret], ...]) -> tuple[tuple[str, str | Secret], ...]:
    """Those that hold no secret."""
    return tuple((name, content) for name, content in headers if isinstance(content, str))
