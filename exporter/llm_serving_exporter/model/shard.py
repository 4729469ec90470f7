"""Which of several exporters that share a fleet reads a target."""

from __future__ import annotations

from llm_serving_exporter.model.record import Struct

MOST_SHARDS = 256


class Shard(Struct, frozen=True):
    """One part of a fleet that is divided among exporters by the targets' names."""

    number: int  # from 1 to `count`
    count: int  # of all shards, from 1 to MOST_SHARDS

    def holds(self, name: str) -> bool:
        """Whether the target of this name belongs to this shard. Of all shards of one count, exactly one says so."""
        return find_shard(name, self.count) == self.number

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"


def find_shard(name: str, count: int) -> int:
    """The number of the shard, from 1 to `count`, that a target's name belongs to.

    It depends on nothing but the two. With one shard more, 1/(count + 1) of the names move, each of them to the new shard.
    Jump consistent hash: Lamping and Veach, "A Fast, Minimal Memory, Consistent Hash Algorithm", 2014, arXiv:1406.2294. Its shards come
    and go at the end of the row, as the pods of a StatefulSet do.
    """
    # takes as long to import as a tenth of --help
    from hashlib import blake2b

    # half of a surrogate pair can come from JSON
    state = int.from_bytes(blake2b(name.encode(errors="surrogatepass"), digest_size=8).digest())
    shard, following = 0, 0
    while following < count:
        shard = following
        # a linear congruential generator modulo 2^64, with the multiplier of the paper
        state = (state * 2862933555777941757 + 1) % 2**64
        # the paper's rule for the next count at which the name would move, from 31 random bits
        following = int((shard + 1) * (2**31 / ((state >> 33) + 1)))
    return shard + 1
