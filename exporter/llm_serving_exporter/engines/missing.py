"""Why a field has no row, where a whole class of tables has the same reason."""

from __future__ import annotations

from llm_serving_exporter.engines.check_row import EXPORTED_FIELDS
from llm_serving_exporter.engines.mapping import PageKind, Runtime
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.target import Role

# fields that only an engine has; any other a front door may have
_OF_ENGINES = frozenset(
    {
        "prefill_tokens_total",
        "prefix_cache_query_tokens_total",
        "prefix_cache_hit_tokens_total",
        "preemptions_total",
        "engine_steps_total",
        "speculative_draft_tokens_total",
        "speculative_accepted_tokens_total",
        "request_queue_time_seconds",
        "request_prefill_time_seconds",
        "request_decode_time_seconds",
        "requests_running",
        "batch_limit_requests",
        "kv_cache_usage_ratio",
        "kv_cache_capacity_tokens",
        "context_limit_tokens",
        "model_gpu_memory_bytes",
    }
)


def explain_missing(table: Runtime) -> Runtime:
    """The table with a reason for each field that it neither reads nor explains: of front doors and servers without metrics."""
    if table.kind is PageKind.NONE or table.without_metrics:
        reasons = dict.fromkeys(EXPORTED_FIELDS, "it has no metrics page")
    elif table.role is Role.FRONTEND:
        engines, not_counted = "an engine's: on the page of each engine behind it", "not counted by it"
        reasons = {field: engines if field in _OF_ENGINES else not_counted for field in EXPORTED_FIELDS}
    else:
        return table
    read = {row.field for row in table.rows}
    return replace(table, missing={**{name: why for name, why in reasons.items() if name not in read}, **table.missing})
