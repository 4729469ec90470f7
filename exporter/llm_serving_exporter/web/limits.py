"""Bounds of the web server."""

from __future__ import annotations

from llm_serving_exporter.model.record import Struct

# of the descriptors that the process may open, the web server takes this share at most: targets, files and discovery need the rest
DESCRIPTOR_SHARE = 4


class Limits(Struct, frozen=True):
    """Bounds of the web server, for all clients together unless a line says otherwise."""

    # connections at the same time; beyond them the slowest one of the peer that has the most makes room
    connections: int = 512
    # connections that get a 503 while nobody can make room; beyond them there is no answer
    refusals: int = 16
    # requests that are answered at the same time, each in a thread: the thread that waits for all clients takes turns with them
    workers: int = 4
    # requests that wait for one of these threads
    queued: int = 128
    # requests that wait until a password has been compared with its hash
    password_checks: int = 64
    # memory of answers that their clients have not taken yet: a large page counts as it is kept, compressed. One answer may be larger,
    # while no other is taken
    unread_bytes: int = 64 * 1024 * 1024
    # from a request's first byte to its last, and for the TLS handshake
    head_seconds: float = 10.0
    # how long a kept connection may wait for its next request: above the usual scrape intervals of 15, 30 and 60 s
    idle_seconds: float = 75.0
    # for one whole answer
    write_seconds: float = 30.0
    # for the answer to a client whose request is not read
    refusal_seconds: float = 1.0
    # of a request's line and headers
    head_bytes: int = 32 * 1024
    # of a request's body, which no page reads
    body_bytes: int = 1024


def fit_connections(limits: Limits, descriptors: int) -> int:
    """How many connections there may be where the process may open so many descriptors."""
    return max(1, min(limits.connections, descriptors // DESCRIPTOR_SHARE))
