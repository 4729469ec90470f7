"""When the alerts of check ttft fire and when they do not."""

from __future__ import annotations

from tests.pack.promtool import Case, Firing

_ENGINE = 'target="replica-0",model_name="chat",engine="0",role="unified"'
_EDGES = ("0.5", "1.0", "2.5", "5.0", "+Inf")


def buckets(name: str, per_minute: dict[str, float], minutes: int, identity: str = _ENGINE) -> dict[str, str]:
    """A histogram that grows by so many events a minute in each bucket (not cumulative here, cumulative in what is made)."""
    series, total = {}, 0.0
    for edge in _EDGES:
        total += per_minute.get(edge, 0.0)
        series[f'llm_serving_{name}_bucket{{{identity},le="{edge}"}}'] = f"0+{total:g}x{minutes}"
    return series


_THRESHOLD = {f'llm_serving_slo_threshold_seconds{{{_ENGINE},slo="ttft",kind="configured"}}': "2.5+0x60"}

CASES = (
    Case(
        "TTFTHigh",
        "a p99 above the threshold for ten minutes",
        # of 100 a minute 95 within 0.5 s and 5 between 2.5 and 5: p99 = 2.5 + 2.5 x 4/5
        {**buckets("time_to_first_token_seconds", {"0.5": 95, "5.0": 5}, 60), **_THRESHOLD},
        "40m",
        (
            Firing(
                {"severity": "info", "check": "ttft", "model_name": "chat", "role": "unified"},
                {
                    "summary": "chat (unified): p99 time to first token 4.5s",
                    "description": "The 99th percentile of 10m is 4.5s, above the threshold. Beyond the engine's largest bucket edge lie 0%: "
                    "where that is more than 1%, read the figure as at least.",
                    "action": "context for other alerts; nobody is notified",
                    "runbook_url": "https://github.com/llm-serving-exporter/llm-serving-exporter/blob/main/alerts/llm_serving_alerts/runbooks/LLMServingTTFTHigh.md",
                    "dashboard_url": "http://localhost:3000/d/llm-serving-ttft?var-model_name=chat&var-role=unified",
                },
            ),
        ),
    ),
    Case(
        "TTFTHigh",
        "just below the threshold",
        {**buckets("time_to_first_token_seconds", {"0.5": 95, "2.5": 5}, 60), **_THRESHOLD},
        "40m",
    ),
)
