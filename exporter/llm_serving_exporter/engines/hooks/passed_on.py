"""Engines' families on the pages of others: Ray Serve LLM's agent, and the workers and the frontend of NVIDIA Dynamo.

Ray's agent takes values over every ten seconds and rebuilds histograms from bucket midpoints: buckets and counts are right, sums are not
(Ray's `open_telemetry_metric_recorder.py`, vLLM's `ray_wrappers.py`). The system port of Dynamo's workers says nothing about a model.
"""

from __future__ import annotations

from collections.abc import Mapping

from llm_serving_exporter.engines.json_answers import add_facts, list_models, text, whole
from llm_serving_exporter.engines.mapping import Aggregate, Endpoint, Flags, Hooks, Reads, Row, Runtime
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.snapshot import Quality, ServerFacts

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


def pass_through_ray(table: Runtime, tables: Mapping[str, Runtime]) -> Runtime:
    """The table of vLLM as the agent passes it on; it says nothing of the engines' start, and their API is on another port."""
    # the agent lacks others than vLLM's own, and makes histograms' sums up
    rows = tuple(
        _through_ray(row)
        for row in table.rows
        if all(name.startswith("vllm:") and not name.endswith("_sum") for name in row.samples)
    )
    lost = {
        "http_responses_total": "the Serve proxy's, not on the agent's page in vLLM's words",
        "batch_limit_requests": "not on the page; the setting",
    }
    missing = {**lost, **table.missing}
    return replace(
        table, rows=rows, start_sample=None, rank_labels=(), endpoints=(), shows=(), flags=None, missing=missing
    )


_ENGINES = ("vllm", "sglang", "trtllm")
# Dynamo's worker counts them beside TensorRT-LLM's own families
_ABORTED = "trtllm_num_aborted_requests_total"


def _with_aborts(row: Row) -> Row:
    if row.field != "requests_finished_total" or row.samples[0] != "trtllm_request_success_total":
        return row
    return replace(row, samples=(*row.samples, _ABORTED), named={**row.named, _ABORTED: "abort"})


def join_engines(table: Runtime, tables: Mapping[str, Runtime]) -> Runtime:
    """The engines' rows, which come before Dynamo's own, and what else of their tables holds for a worker."""
    engines = [tables[name] for name in _ENGINES]
    flags = [engine.flags for engine in engines if engine.flags is not None]
    return replace(
        table,
        rows=(*(_with_aborts(row) for engine in engines for row in engine.rows), *table.rows),
        prefixes=(*table.prefixes, *(prefix for engine in engines for prefix in engine.prefixes)),
        ignored=(*table.ignored, *(pattern for engine in engines for pattern in engine.ignored)),
        rank_labels=tuple(dict.fromkeys(label for engine in engines for label in engine.rank_labels)),
        only={label: values for engine in engines for label, values in engine.only.items()},
        unnamed=tables["trtllm"].unnamed,
        # the version that it says is Dynamo's own
        kv_as_calibrated={method: "" for engine in engines for method in engine.kv_as_calibrated},
        # the worker hands its arguments to the engine
        flags=Flags(
            tuple(dict.fromkeys(flag for given in flags for flag in given.batch_limit)),
            tuple(dict.fromkeys(flag for given in flags for flag in given.unless)),
        ),
        default_edges=tables["vllm"].default_edges,
    )


def read_dynamo_models(answer: object, facts: ServerFacts) -> ServerFacts:
    """`/v1/models`: data[].context_window by served name, 0 where the worker was started without one."""
    named = [
        (name, whole(entry.get("context_window"))) for entry in list_models(answer) if (name := text(entry.get("id")))
    ]
    return add_facts(
        facts,
        model_names=tuple(name for name, _ in named),
        context_limit_tokens={name: limit for name, limit in named if limit is not None},
    )


RAY_VLLM = Hooks(complete=pass_through_ray)
DYNAMO_WORKER = Hooks(complete=join_engines)
DYNAMO_FRONTEND = Hooks(
    endpoints=(Endpoint("/v1/models", read_dynamo_models, ("context_limit_tokens", "model_names")),)
)
