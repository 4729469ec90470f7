"""Paged KV cache: blocks of running requests, and whole blocks of what was computed before, kept until somebody needs the room.

Blocks are counted, not named. What is free is a queue in order of disuse, as vLLM's free list: allocation takes its head; a request that
ends puts its blocks at the tail, its last ones first, so that beginnings live longest. Blocks that nobody can ask for again (the own
part of a prompt that has ended) merge into one entry, so that the queue stays as short as there are prefixes.

Approximated: a shared prefix counts as cached from the admission of the request that computes it, not chunk by chunk.
"""

from __future__ import annotations

from collections import OrderedDict

from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.record import Struct


class Cached:
    """Content that may be found again: `present` blocks of it from its beginning, free where nobody holds it.

    `size`: blocks that it has when whole; `key` by which others find it, None for what a request left behind for itself.
    """

    __slots__ = ("holders", "key", "present", "reachable", "size", "slot")

    def __init__(self, size: int, key: str | None = None) -> None:
        self.size, self.key = size, key
        self.present = 0
        self.holders = 0
        self.reachable = True
        self.slot: int | None = None  # its place in the queue


class Holding(Struct):
    """KV blocks of one running request."""

    shared: Cached | None  # the shared prefix that it reads; None: none
    own_blocks: int
    hit_tokens: int  # that it found in the cache at its admission


class KvCache:
    """`blocks` usable blocks of `block_tokens` tokens. `caching` off: nothing is ever found again."""

    def __init__(self, blocks: int, block_tokens: int, *, caching: bool = True) -> None:
        self.blocks, self.block_tokens, self.caching = blocks, block_tokens, caching
        self.free = blocks
        self._prefixes: dict[str, Cached] = {}
        self._queue: OrderedDict[int, tuple[int, Cached | None]] = OrderedDict({0: (blocks, None)})
        self._next_slot = 1

    @property
    def usage_ratio(self) -> float:
        """Blocks that running requests hold, over all; blocks that only the cache keeps are free."""
        return (self.blocks - self.free) / self.blocks

    @property
    def cached_blocks(self) -> int:
        """Free blocks whose content could be found again."""
        return add_up(count for count, content in self._queue.values() if content is not None)

    def blocks_of(self, tokens: int) -> int:
        """Blocks that so many tokens need."""
        return -(-tokens // self.block_tokens)

    def admit(
        self, tokens: int, prefix: str | None, prefix_tokens: int, left: Cached | None, reserve_blocks: int
    ) -> Holding | None:
        """Blocks for `tokens` tokens of a request, what the cache has of them included; None where there is not enough room.

        `left`: what the request itself left behind when it was preempted. `reserve_blocks` stay free. The last token is never
        taken from the cache: its logits are what the answer begins with.
        """
        shared = self._shared(prefix, prefix_tokens // self.block_tokens) if prefix is not None else None
        size = shared.size if shared else 0
        findable = (tokens - 1) // self.block_tokens
        hits = shared.present if shared else 0
        own_hits = min(left.present, findable - size) if left and hits == size else 0
        waking = own_hits + (hits if shared and not shared.holders else 0)
        new = self.blocks_of(tokens) - hits - own_hits
        if new + reserve_blocks > self.free - waking:
            return None
        if shared:
            if not shared.holders:
                self._wake(shared, hits)
            shared.holders += 1
            shared.present = size
        if left:
            self._wake(left, own_hits)
        self.allocate(new)
        return Holding(shared, self.blocks_of(tokens) - size, (hits + own_hits) * self.block_tokens)

    def allocate(self, count: int) -> None:
        """Allocates free blocks, those that were unused longest first. There must be as many."""
        self.free -= count
        assert self.free >= 0
        while count:
            slot, (there, content) = next(iter(self._queue.items()))
            taken = min(there, count)
            count -= taken
            if taken == there:
                del self._queue[slot]
            else:
                self._queue[slot] = there - taken, content
            if content is not None:
                content.present -= taken  # from its end
                if not content.present:
                    content.slot = None
                    if content.key is not None:
                        del self._prefixes[content.key]

    def release(self, holding: Holding, own_blocks: int, findable_blocks: int = 0) -> Cached | None:
        """Gives back a request's blocks, of which it has `own_blocks` of its own by now.

        `findable_blocks` of these, from the beginning, may be found again by the request itself: what is returned stands for them.
        """
        left = None
        findable = min(findable_blocks, own_blocks) if self.caching else 0
        self._release_blocks(own_blocks - findable, None)
        if findable:
            left = Cached(findable)
            self._release_blocks(findable, left)
        shared = holding.shared
        if shared:
            shared.holders -= 1
            if not shared.holders:
                self._release_blocks(shared.size, shared if shared.reachable else None)
        return left

    def forget(self, left: Cached) -> None:
        """Nobody will ask for it again."""
        self._wake(left, 0)

    def reset(self) -> None:
        """Drops everything that is cached. Requests keep their blocks; what they hold is not found by others any more."""
        for slot, (count, content) in self._queue.items():
            self._queue[slot] = count, None
            if content is not None:
                content.present, content.slot = 0, None
        for shared in self._prefixes.values():
            shared.reachable = False
        self._prefixes.clear()

    def _shared(self, prefix: str, size: int) -> Cached | None:
        if not self.caching or not size:
            return None
        key = f"{prefix}/{size}"
        found = self._prefixes.get(key)
        if found is None:
            found = self._prefixes[key] = Cached(size, key)
        return found

    def _wake(self, content: Cached, wanted: int) -> None:
        """Takes `wanted` blocks of a content out of the queue; what remains of it there nobody can find any more."""
        if content.slot is None:
            return
        there, _ = self._queue[content.slot]
        self.free -= wanted
        if there == wanted:
            del self._queue[content.slot]
        else:
            self._queue[content.slot] = there - wanted, None
        content.slot, content.present = None, 0

    def _release_blocks(self, count: int, content: Cached | None) -> None:
        if not count:
            return
        self.free += count
        if content is None and self._queue:
            last = next(reversed(self._queue))
            there, kept = self._queue[last]
            if kept is None:
                self._queue[last] = there + count, None
                return
        self._queue[self._next_slot] = count, content
        if content is not None:
            content.slot, content.present = self._next_slot, count
        self._next_slot += 1
