"""The simulated engine told once more, as simply as possible: a loop a token, a list of blocks. Slow, and the oracle of the fast one.

Nothing of `llm_serving_simulator.fleet` but the cost of a step and the records is used.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from llm_serving_simulator.fleet.spec import Chunk, EngineSpec
from llm_serving_simulator.fleet.workload import Request


@dataclass
class Life:
    """One request: `at` its first token, `token_times` of all."""

    number: int
    request: Request
    generated: int = 0
    stored: int = 0
    target: int = 0
    blocks: list[int] = field(default_factory=list)
    token_times: list[float] = field(default_factory=list)
    scheduled: float | None = None
    hits: int = 0
    preemptions: int = 0
    ended: float | None = None


class Blocks:
    def __init__(self, count: int) -> None:
        self.free: OrderedDict[int, None] = OrderedDict.fromkeys(range(count))
        self.holders = [0] * count
        self.key_of: dict[int, object] = {}
        self.found: dict[object, int] = {}

    def allocate(self, key: object | None) -> int:
        block, _ = self.free.popitem(last=False)
        old = self.key_of.pop(block, None)
        if old is not None and self.found.get(old) == block:
            del self.found[old]
        self.holders[block] = 1
        if key is not None:
            self.name(block, key)
        return block

    def name(self, block: int, key: object) -> None:
        self.key_of[block] = key
        self.found[key] = block

    def hold(self, block: int) -> None:
        self.free.pop(block, None)
        self.holders[block] += 1

    def release(self, blocks: list[int]) -> None:
        for block in reversed(blocks):
            self.holders[block] -= 1
            if not self.holders[block]:
                self.free[block] = None


def simulate(spec: EngineSpec, requests: Sequence[Request]) -> tuple[list[Life], int]:
    """Every request's life, and the preemptions. All arrive at their own times; it runs until all have ended."""
    blocks = Blocks(spec.usable_blocks)
    size = spec.block_tokens
    lives = [Life(number, request, target=request.prompt_tokens) for number, request in enumerate(requests)]
    future, waiting, running = list(lives), [], []
    now, preemptions = 0.0, 0

    def keys(life: Life) -> list[object]:
        shared = life.request.prefix_tokens // size if life.request.prefix and spec.prefix_caching else 0
        whole = (life.target - 1) // size
        return [("p", life.request.prefix, i) if i < shared else ("r", life.number, i) for i in range(whole)]

    def preempt(life: Life) -> None:
        nonlocal preemptions
        running.remove(life)
        for i, block in enumerate(life.blocks):  # what it has stored whole can be found again
            if (i + 1) * size <= life.stored and spec.prefix_caching and block not in blocks.key_of:
                blocks.name(block, ("r", life.number, i))
        blocks.release(life.blocks)
        life.blocks, life.stored, life.target = [], 0, life.request.prompt_tokens + life.generated
        life.preemptions += 1
        preemptions += 1
        waiting.insert(0, life)

    while future or waiting or running:
        if not running and not waiting:
            now = max(now, future[0].request.at_seconds)
        while future and future[0].request.at_seconds <= now:
            waiting.append(future.pop(0))

        def decoding() -> list[Life]:
            return [life for life in running if life.generated and life.stored >= life.target]

        def need() -> int:
            return sum(life.stored % size == 0 for life in decoding())

        preempted = False
        while need() > len(blocks.free):
            preempt(running[-1])
            preempted = True
        decoders = decoding()
        budget = spec.max_num_batched_tokens - len(decoders)
        chunks: list[tuple[Life, int]] = []
        for life in running:
            if life not in decoders and budget > 0:
                tokens = min(budget, life.target - life.stored)
                chunks.append((life, tokens))
                budget -= tokens
        while not preempted and waiting and budget > 0 and len(running) < spec.max_num_seqs:
            life = waiting[0]
            hit: list[int] = []
            for key in keys(life):
                if key not in blocks.found:
                    break
                hit.append(blocks.found[key])
            total = -(-life.target // size)
            asleep = sum(block in blocks.free for block in hit)
            if total - len(hit) + need() > len(blocks.free) - asleep:
                break
            for block in hit:
                blocks.hold(block)
            names = keys(life)
            for i in range(len(hit), total):
                # a shared prefix is there for others at once, what is its own when it is preempted
                name = names[i] if i < len(names) and names[i][0] == "p" else None
                life.blocks.append(blocks.allocate(name))
            life.blocks = hit + life.blocks
            life.stored = len(hit) * size
            if life.scheduled is None:
                life.scheduled, life.hits = now, life.stored
            waiting.pop(0)
            running.append(life)
            tokens = min(budget, life.target - life.stored)
            chunks.append((life, tokens))
            budget -= tokens
        contexts = sum(life.stored + 1 for life in decoders)
        if chunks:
            parts = [Chunk(tokens, life.stored, life.stored + tokens == life.target) for life, tokens in chunks]
            now += spec.cost.mixed(len(decoders), contexts, parts).seconds
        else:
            ramp = spec.cost.decode(len(decoders), contexts)
            now += max(ramp.memory, ramp.computing) + ramp.overhead
        for life in decoders:
            if life.stored % size == 0:
                life.blocks.append(blocks.allocate(None))
            life.stored += 1
            life.generated += 1
            life.token_times.append(now)
        for life, tokens in chunks:
            life.stored += tokens
            if life.stored == life.target:
                life.generated += 1
                life.token_times.append(now)
        for life in [life for life in running if life.generated == life.request.output_tokens]:
            if life.stored >= life.target:
                running.remove(life)
                blocks.release(life.blocks)
                life.ended = now
    return lives, preemptions
