"""Ray Serve LLM: what Ray's agent makes of vLLM's families.

The agent takes values over every ten seconds and rebuilds histograms from bucket midpoints: buckets and counts are right, sums are not
(Ray's `open_telemetry_metric_recorder.py`, vLLM's `ray_wrappers.py`).
"""

from __future__ import annotations

from collections.abc import Mapping

from llm_serving_exporter.engines.mapping import Aggregate, Hooks, Reads, Row, Runtime
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.snapshot import Quality

_RECORDER = (
    "https://github.com/ray-project/ray/blob/ray-2.60.0/python/ray/_private/telemetry/open_telemetry_metric_recorder.py"
)
_WRAPPERS = "https://github.com/vllm-project/vllm/blob/v0.33.0/vllm/v1/metrics/ray_wrappers.py"

REPORT_SECONDS = 10.0  # metrics_report_interval_ms in Ray's ray_config_def.h
_REPORTED = {
    Reads.VALUE: "Updated every 10 s; a counter is not there before its first event, a gauge not while the replica is idle.",
    Reads.HISTOGRAM: "Updated every 10 s. Without a sum: Ray makes it up from bucket midpoints.",
    Reads.LABELS: "Gone with the gauges of an idle replica.",
    Reads.TEXT: "Gone with the gauges of an idle replica.",
    Reads.PRESENCE: "",
}


def _passed_on(row: Row) -> bool:
    """Whether the agent has the row's sample as vLLM has it: others than vLLM's own it lacks, and histograms' sums are made up."""
    return all(name.startswith("vllm:") and not name.endswith("_sum") for name in row.samples)


def _through_ray(row: Row) -> Row:
    live = row.quality is Quality.LIVE and row.reads in (Reads.VALUE, Reads.HISTOGRAM, Reads.PRESENCE)
    return replace(
        row,
        quality=Quality.SLOW if live else row.quality,
        refresh_seconds=REPORT_SECONDS,
        sum_is_sound=False,
        multiprocess_quality=None,
        # no version is known here; vLLM counts errors since 0.13, which no Ray that has these names is too old for
        guarded=row.guarded and "error" not in row.rename.values(),
        proof=None if "error" in row.rename.values() else row.proof,
        # a share of two workers that nothing tells apart is nobody's
        aggregate=Aggregate.ONE if row.field == "kv_cache_usage_ratio" else row.aggregate,
        caveat=" ".join(filter(None, (row.caveat, _REPORTED[row.reads]))),
        source=_RECORDER if row.reads is Reads.HISTOGRAM else _WRAPPERS,
    )


def complete(table: Runtime, tables: Mapping[str, Runtime]) -> Runtime:
    """The table of vLLM as the agent passes it on; it says nothing of the engines' start, and their API is on another port."""
    rows = tuple(_through_ray(row) for row in table.rows if _passed_on(row))
    lost = {
        "http_responses_total": "the Serve proxy's, not on the agent's page in vLLM's words",
        "batch_limit_requests": "not on the page; the setting",
    }
    return replace(
        table,
        rows=rows,
        start_sample=None,
        rank_labels=(),
        endpoints=(),
        shows=(),
        flags=None,
        missing={**lost, **table.missing},
    )


HOOKS = Hooks(complete=complete)
