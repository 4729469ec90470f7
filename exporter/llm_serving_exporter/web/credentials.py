"""Whose requests were answered with what they asked for: they wait for nobody who has yet to show that."""

from __future__ import annotations

import hashlib
import re
import secrets
import threading

_AUTHORIZATION = re.compile(rb"\nauthorization[ \t]*:[ \t]*([^\r\n]*)", re.IGNORECASE)
# kept; scrapers of one exporter are few
_MOST = 64


class EarnedCredentials:
    """Authorization headers that were right, as digests under a key of this process. Used by any thread."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._lock = threading.Lock()
        self._known: dict[bytes, None] = {}

    def add(self, head: bytes) -> None:
        """Remembers a request's credentials, if it has any; the oldest are forgotten."""
        digest = self._digest(head)
        if digest is None:
            return
        with self._lock:
            self._known.pop(digest, None)
            self._known[digest] = None
            while len(self._known) > _MOST:
                del self._known[next(iter(self._known))]

    def has(self, head: bytes) -> bool:
        """Whether a request comes with credentials that were right. They are judged again all the same."""
        digest = self._digest(head) if self._known else None
        return digest is not None and digest in self._known

    def _digest(self, head: bytes) -> bytes | None:
        found = _AUTHORIZATION.search(head)
        return hashlib.blake2b(found[1], key=self._key, digest_size=16).digest() if found else None
