"""Names of tenants that may be published: never an address or a key, printable, and only so many of them."""

from __future__ import annotations

import hashlib
import hmac
import re
from threading import Lock

from llm_serving_exporter.files.watched import KeyFileError, read_key_file
from llm_serving_exporter.model.tenants import (
    OTHER,
    SHORTEST_KEY_BYTES,
    UNLABELLED,
    WITHHELD,
    TenantKind,
    TenantSettings,
)
from llm_serving_exporter.model.text import clean, has_address

LONGEST_NAME = 80
HEX_DIGITS = 16
# as OpenAI and LiteLLM make keys: somebody may have written one where a name belongs
_API_KEY = re.compile(r"(?<![A-Za-z0-9])sk-(?=[\w-]{0,60}\d)[\w-]{16}")


class TenantNames:
    """Names that may be published, of all front doors of one process. Threads may share it.

    The first `limit` tenants have names of their own, which they keep; all later ones are `other`. Without a key that can be read where one
    is asked for, every tenant is `withheld`.
    """

    def __init__(self, settings: TenantSettings) -> None:
        self.settings = settings
        self.key = _read_key(settings.key_file)
        self._lock = Lock()
        # published names of their own, in the order of their first sight
        self._own: set[str] = set()

    def publish(self, raw: str) -> str:
        """The name under which a tenant may be published. `raw`: as the page has it, "" for none."""
        if not raw or raw.isspace():
            return UNLABELLED
        name = self._disguise(raw)
        if name in (WITHHELD, OTHER, UNLABELLED):
            return name
        with self._lock:
            if name not in self._own:
                if len(self._own) >= self.settings.limit:
                    return OTHER
                self._own.add(name)
        return name

    def _disguise(self, raw: str) -> str:
        if self.settings.key_file is not None:
            return hash_name(self.key, raw) if self.key is not None else WITHHELD
        secret = has_address(raw) or _API_KEY.search(raw)
        return WITHHELD if secret else clean(raw, LONGEST_NAME)


def hash_name(key: bytes, name: str) -> str:
    """The first hex digits of HMAC-SHA256 (RFC 2104) of a name: the same name has the same, and without the key none can be tried."""
    return hmac.new(key, name.encode(errors="surrogatepass"), hashlib.sha256).hexdigest()[:HEX_DIGITS]


def make_names(settings: TenantSettings, before: TenantNames | None) -> TenantNames | None:
    """Names by a configuration; None where tenants are off. Those of before go on where neither it nor the key has changed."""
    if settings.by is TenantKind.OFF:
        return None
    if before is not None and before.settings == settings and before.key == _read_key(settings.key_file):
        return before
    return TenantNames(settings)


def _read_key(path: str | None) -> bytes | None:
    try:
        return None if path is None else read_key_file(path, SHORTEST_KEY_BYTES)
    except KeyFileError:
        # it was there when the configuration was checked
        return None
