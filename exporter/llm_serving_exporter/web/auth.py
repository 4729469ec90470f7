"""Basic authentication against bcrypt hashes: slow once for each pair of name and password, and the same for names unknown."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
import threading
from collections.abc import Mapping

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
    """Compares passwords with hashes. Results are kept under a keyed digest, so that no password stays in memory.

    Only one hash is computed at a time: a flood of wrong passwords costs one core at most, and clients whose result is already known do
    not wait for it.
    """

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._results: dict[bool, dict[bytes, None]] = {True: {}, False: {}}
        self._lock = threading.Lock()
        self._working = threading.Lock()

    def allows(self, users: Mapping[str, str], name: str, password: bytes) -> bool:
        """Whether the name is known and the password is its own. `users`: name -> bcrypt hash, not empty."""
        expected = _choose_hash(users, name)
        digest = self._digest(name, expected, password)
        known = self._known(digest)
        if known is None:
            with self._working:
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
