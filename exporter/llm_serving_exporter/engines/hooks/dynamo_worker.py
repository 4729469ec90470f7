"""A worker of NVIDIA Dynamo: the tables of the engines whose families it passes on, in one."""

from __future__ import annotations

from collections.abc import Mapping

from llm_serving_exporter.engines.mapping import Flags, Hooks, Row, Runtime
from llm_serving_exporter.model.record import replace

_ENGINES = ("vllm", "sglang", "trtllm")
# Dynamo's worker counts them beside TensorRT-LLM's own families
_ABORTED = "trtllm_num_aborted_requests_total"


def _with_aborts(row: Row) -> Row:
    if row.field != "requests_finished_total" or row.samples[0] != "trtllm_request_success_total":
        return row
    return replace(row, samples=(*row.samples, _ABORTED), named={**row.named, _ABORTED: "abort"})


def complete(table: Runtime, tables: Mapping[str, Runtime]) -> Runtime:
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
            tuple(dict.fromkeys(flag for one in flags for flag in one.batch_limit)),
            tuple(dict.fromkeys(flag for one in flags for flag in one.unless)),
        ),
        default_edges=tables["vllm"].default_edges,
    )


HOOKS = Hooks(complete=complete)
