"""Pages of a vLLM server whose true state is clear by construction, and what parser, normaliser and derive make of them.

`judge(server, roof)` reads a page every ten seconds, and gives the verdict after the last of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from llm_serving_exporter.derive.derive import DeriveSettings, Tick
from llm_serving_exporter.derive.lengths import LengthHistories, follow_lengths
from llm_serving_exporter.derive.window import advance_window, find_spans
from llm_serving_exporter.derive.work import Roof
from llm_serving_exporter.engines.apply import Overrides
from llm_serving_exporter.model.derived import Verdict
from llm_serving_exporter.model.hardware import Hardware
from llm_serving_exporter.model.target import Role
from llm_serving_exporter.model.window import Window
from tests.support.builders.snapshots import snapshot_of

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
    assert tick is not None
    verdict = tick.whole().verdict
    assert verdict is not None
    return verdict
