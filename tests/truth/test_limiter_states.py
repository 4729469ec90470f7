"""Servers whose true state is clear, through parser, normaliser and derive: published ones, and pages that leave no doubt."""

import re
import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest

from llm_serving_exporter.derive.derive import DeriveSettings, Tick
from llm_serving_exporter.derive.lengths import LengthHistories, follow_lengths
from llm_serving_exporter.derive.window import advance_window, find_spans
from llm_serving_exporter.derive.work import Roof
from llm_serving_exporter.engines.apply import Overrides
from llm_serving_exporter.model.derived import Limiter, Verdict
from llm_serving_exporter.model.hardware import Hardware, Parallel
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.target import Role
from llm_serving_exporter.model.window import Window
from tests.support.builders.snapshots import snapshot_of
from tests.support.models.points import Kind, Phase, Point, points
from tests.support.models.roofs import H100, LLAMA_8B, served
from tests.support.paths import ROOT, TESTS
from tests.support.rows import check_rows

# --- pages of a vLLM server whose true state is clear by construction, and what parser, normaliser and derive make of them ---
# `judge(server, roof)` reads a page every ten seconds, and gives the verdict after the last of them.


WINDOW_SECONDS, EVERY_SECONDS = 60.0, 10.0
_LABELS = 'engine="0",model_name="m"'
_BLOCK = 16
# no event is longer
_LAST_EDGE = "1000000.0"
# what it had done when it is first looked at
_EARLIER_SECONDS = 3600.0


@dataclass(frozen=True)
class Server:
    """What one engine does all the time, per second where it is done; nothing of it after `until`.

    `decoded`: sequence-steps, of `running` sequences together; `prompts`: requests whose prefill ends, each of `prompt` tokens of which
    `cached` are found in the prefix cache; `context`: tokens that a sequence has in the mean; `limit`: most requests that run at once;
    `capacity`: tokens of the KV cache, by default those of
    which what runs takes `usage`; `deferred`: of those that wait, None where the page does not tell them apart.
    """

    running: float = 0.0
    decoded: float = 0.0
    prompts: float = 0.0
    prompt: float = 1000.0
    cached: float = 0.0
    context: float = 1000.0
    waiting: float = 0.0
    deferred: float | None = None
    usage: float = 0.5
    capacity: int | None = None
    limit: int | None = None
    preemptions: float = 0.0
    connector: bool = False
    until: float = float("inf")

    @property
    def blocks(self) -> int:
        """Of the KV cache."""
        capacity = self.capacity or max(1.0, self.running) * self.context / self.usage
        return max(1, round(capacity / _BLOCK))

    def write(self, at: float) -> str:
        """Its page after so many seconds."""
        done = _EARLIER_SECONDS + min(at, self.until)
        first, decoded = self.prompts * done, self.decoded * done
        # what runs has its step in common
        steps = decoded / self.running if self.running else 0.0
        step_seconds = self.running / self.decoded if self.decoded else 0.0
        sent = first * self.prompt
        # requests that are half done have as many tokens of their answer behind them
        answer = max(1.0, 2 * (self.context - self.prompt)) if self.decoded else 1.0
        finished = max(first, 100.0)
        lines: dict[str, float | None] = {
            "num_requests_running": self.running,
            "num_requests_waiting": self.waiting,
            "kv_cache_usage_perc": self.usage,
            "generation_tokens_total": decoded + first,
            "prompt_tokens_total": sent,
            "prefix_cache_queries_total": sent,
            "prefix_cache_hits_total": first * self.cached,
            "num_preemptions_total": self.preemptions * done,
            # where something decodes, prompts ride in its steps
            "iteration_tokens_total_count": steps or first,
            'num_requests_kv_fetch_by_stage{stage="waiting"}': self.waiting if self.connector else None,
        }
        if self.deferred is not None:
            lines['num_requests_waiting_by_reason{reason="deferred"}'] = self.deferred
            lines['num_requests_waiting_by_reason{reason="capacity"}'] = self.waiting - self.deferred
        written = [_line(name, value) for name, value in lines.items() if value is not None]
        written.append(
            f'vllm:cache_config_info{{block_size="{_BLOCK}",num_gpu_blocks="{self.blocks}",engine="0",'
            'enable_prefix_caching="True"} 1'
        )
        for name, count, total in (
            ("inter_token_latency_seconds", decoded, decoded * step_seconds),
            ("time_to_first_token_seconds", first, first * 0.1),
            ("request_prompt_tokens", finished, finished * self.prompt),
            ("request_generation_tokens", finished, finished * answer),
        ):
            written += [_line(f'{name}_bucket{{le="{edge}"}}', count) for edge in (_LAST_EDGE, "+Inf")]
            written += [_line(f"{name}_count", count), _line(f"{name}_sum", total)]
        return "\n".join(written) + "\n"


def _line(name: str, value: float) -> str:
    bare, _, own = name.partition("{")
    return f"vllm:{bare}{{{_LABELS}{',' + own.rstrip('}') if own else ''}}} {value!r}"


def judge(
    server: Server, roof: Roof | None, *, seconds: float = 90.0, role: Role = Role.UNIFIED, stalled_after: float = 300.0
) -> Verdict:
    """After so many seconds of it. `roof` None: neither model nor GPU is known."""
    hardware = Hardware() if roof is None else Hardware(roof.peaks, roof.parallel)
    models: Mapping[str, object] = {} if roof is None else {"m": roof.model}
    window: Window | None = None
    tick: Tick | None = None
    lengths: LengthHistories = {}
    at = 0.0
    while at <= seconds:
        snapshot = snapshot_of(server.write(at), at=at, overrides=Overrides(batch_limit_requests=server.limit))
        lengths = follow_lengths(lengths, snapshot, new_life=False)
        settings = DeriveSettings(
            hardware=hardware, models=models, role=role, lengths=lengths, stalled_after_seconds=stalled_after
        )
        window = advance_window(window, snapshot, find_spans(WINDOW_SECONDS, snapshot), None)
        tick = Tick(window, settings, tick)
        at += EVERY_SECONDS
    verdict = tick.whole().verdict
    assert verdict is not None
    return verdict


PAGE = (ROOT / "docs/internals-limiter.md").read_text(encoding="utf-8")
PUBLISHED: list[dict[str, Any]] = tomllib.loads((TESTS / "truth/states.toml").read_text(encoding="utf-8"))["server"]


# --- published servers -----------------------------------------------------------------------------------------------------


@cache
def by_name() -> Mapping[str, Point]:
    measured = [point for point in points() if point.source.kind is Kind.MEASURED]
    return {f"{point}, {point.weight_format}": point for point in measured}


def as_server(point: Point) -> Server:
    """One data-parallel rank of it, which is what a page shows."""
    rate, batch = point.rate / point.dp, point.batch / point.dp
    if point.phase is Phase.PREFILL:
        prompts = rate / (point.prompt - point.prefix)
        return Server(
            running=max(1.0, batch), prompts=prompts, prompt=point.prompt, cached=point.prefix, context=point.prompt
        )
    context = point.context or 1000.0
    if point.row is not None and point.row.prompt:
        prompts, prompt = rate / point.row.output, point.row.prompt
        return Server(running=batch, decoded=rate, context=context, prompts=prompts, prompt=prompt)
    return Server(running=batch, decoded=rate, context=context, prompt=max(1.0, context - 1))


@check_rows("told", PUBLISHED, ids=lambda told: told["server"])
def test_published_servers_are_shown_as_what_they_are(told: Mapping[str, str]) -> None:
    point = by_name()[told["server"]]
    assert judge(as_server(point), point.roof).state is Limiter(told["state"])


def test_there_are_many_of_them_of_every_healthy_state() -> None:
    assert len(PUBLISHED) >= 60
    assert len({told["server"] for told in PUBLISHED}) == len(PUBLISHED)
    states = {told["state"] for told in PUBLISHED}
    assert states == {"bandwidth", "compute", "overhead", "prefill_interference"}
    assert all(told["why"] for told in PUBLISHED)


def test_the_page_counts_them_by_state_and_reason() -> None:
    section = PAGE.split("## Published servers")[1]
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \| (\d+) \|$", section, re.MULTILINE)
    assert {(state, why): int(count) for state, why, count in rows} == Counter(
        (told["state"], told["why"]) for told in PUBLISHED
    )
    assert len(rows) == len(dict.fromkeys((state, why) for state, why, _ in rows))


# --- pages made -------------------------------------------------------------------------------------------------------------

ROOF = Roof(served(LLAMA_8B), H100, Parallel())
# an 8B on one H100 with 64 sequences of 1,000 tokens reads 24 GB a step: at 80 steps a second more than half of what the card can
WELL = Server(running=64.0, decoded=64 * 80.0, prompts=5.0, prompt=500.0, limit=256)
# nothing of it is near: as many requests, a tenth of the steps
SLOW = replace(WELL, decoded=64 * 8.0, prompts=0.5)


def state_of(server: Server, **more: Any) -> Limiter:
    return judge(server, ROOF, **more).state


def test_a_server_that_is_well() -> None:
    assert state_of(WELL) is Limiter.BANDWIDTH
    assert state_of(SLOW) is Limiter.OVERHEAD
    assert state_of(Server()) is Limiter.STARVED


def test_twenty_prompts_of_which_none_fits() -> None:
    """8 % of the KV cache each, at 0.93 of it: that its memory is busy, too, is not what limits it."""
    full = replace(WELL, waiting=20.0, usage=0.93, capacity=100_000, prompt=8000.0, context=8100.0, prompts=0.1)
    told = judge(full, ROOF)
    assert told.state is Limiter.KV_CAPACITY
    assert told.evidence["next_prompt_kv"] == pytest.approx(8000 / 7000, rel=0.01)
    assert told.evidence["bandwidth"] > 0.4
    # half of each is in the prefix cache: 4,000 tokens do fit
    assert state_of(replace(full, cached=4000.0)) is Limiter.BANDWIDTH
    # a batch that is full comes before
    assert state_of(replace(full, limit=64)) is Limiter.BATCH_LIMIT


def test_a_full_cache_and_preemptions() -> None:
    assert state_of(replace(WELL, waiting=5.0, usage=0.99)) is Limiter.KV_CAPACITY
    assert state_of(replace(WELL, waiting=5.0, preemptions=0.01)) is Limiter.KV_CAPACITY
    # those that are preempted may never be seen waiting
    assert state_of(replace(WELL, preemptions=0.2)) is Limiter.KV_CAPACITY
    assert state_of(replace(WELL, preemptions=0.01)) is Limiter.BANDWIDTH


def test_a_full_batch() -> None:
    assert state_of(replace(WELL, waiting=5.0, limit=64)) is Limiter.BATCH_LIMIT


@check_rows(
    ("changes", "role", "state"),
    [
        ({"connector": True}, Role.UNIFIED, Limiter.TRANSFER),
        ({}, Role.DECODE, Limiter.TRANSFER),
        ({}, Role.UNIFIED, Limiter.BLOCKED),
        # for room, as the page says
        ({"deferred": 0.0, "connector": True}, Role.UNIFIED, Limiter.OVERHEAD),
        ({"deferred": 0.0, "limit": 64}, Role.DECODE, Limiter.BATCH_LIMIT),
        # the page does not tell them apart
        ({"deferred": None, "connector": True}, Role.DECODE, Limiter.OVERHEAD),
    ],
)
def test_what_requests_wait_for(changes: Mapping[str, Any], role: Role, state: Limiter) -> None:
    waits = replace(SLOW, waiting=6.0, deferred=6.0)
    assert state_of(replace(waits, **changes), role=role) is state


def test_a_hung_engine() -> None:
    """Nothing moves from a minute on, while requests run and wait: after five minutes it is stalled, and not before."""
    hung = replace(WELL, waiting=9.0, until=60.0)
    assert state_of(hung, seconds=330.0) is not Limiter.STALLED
    told = judge(hung, ROOF, seconds=380.0)
    assert told.state is Limiter.STALLED
    assert told.evidence["standstill_seconds"] == pytest.approx(320, abs=11)
    assert state_of(hung, seconds=380.0, stalled_after=600.0) is not Limiter.STALLED


def test_the_silence_of_a_long_prefill_is_no_standstill() -> None:
    """128,000 tokens at 1,000 tokens/s: two minutes in which no token comes."""
    assert state_of(replace(WELL, until=60.0), seconds=190.0) is not Limiter.STALLED


def test_without_facts_only_what_the_page_says() -> None:
    assert judge(WELL, None).state is Limiter.UNKNOWN
    assert judge(replace(WELL, waiting=5.0, usage=0.99), None).state is Limiter.KV_CAPACITY
    assert judge(replace(WELL, waiting=9.0, until=60.0), None, seconds=400.0).state is Limiter.STALLED
    assert judge(Server(), None).state is Limiter.STARVED
