"""The rows of the long-context tail: its figures out of the history of an engine's request lengths."""

from __future__ import annotations

from collections.abc import Callable

from llm_serving_exporter.catalogue import derived as names
from llm_serving_exporter.catalogue.spec import Metric
from llm_serving_exporter.derive.figures import figure
from llm_serving_exporter.derive.inputs import SETTINGS, WINDOW, Settings
from llm_serving_exporter.derive.signals import NEVER_SILENT, NOT_ON_A_FRONT_END, Row, gauge
from llm_serving_exporter.derive.tail import FEWEST
from llm_serving_exporter.model.derived import Tail
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.snapshot import Absence, Quality
from llm_serving_exporter.model.target import Role
from llm_serving_exporter.model.window import EngineWindow

_PROMPTS, _OUTPUTS = "request_prompt_tokens", "request_generation_tokens"
_CAPACITY = "kv_cache_capacity_tokens"
_SENTENCES = {
    Absence.IDLE: "Fewer than 100 requests have finished in its window so far: the longest 1 % of them is less than one.",
    Absence.INPUT_MISSING: (
        "The histogram of request lengths has no buckets or no sum, or its sum contradicts its buckets: "
        "nothing can be said of the longest requests."
    ),
}


def _tail(window: EngineWindow, settings: Settings) -> Tail | None:
    last = window.last
    history = settings.lengths.get((last.model_name, last.engine))
    return history.tail if history is not None and last.request_prompt_tokens is not None else None


def _part_of(name: str, fields: tuple[str, ...]) -> Callable[[EngineWindow, Tail | None], object]:
    def part(window: EngineWindow, found: Tail | None) -> object:
        value = getattr(found, name, None)
        if value is not None and value != {}:
            return value
        few = found is not None and found.observed < FEWEST
        there = all(getattr(window.last, field) is not None for field in fields)
        return Absence.IDLE if few and there else Absence.INPUT_MISSING

    return part


def _clipped(found: Tail | None) -> Quality | None:
    p99 = found.prompt_p99 if found is not None else None
    return Quality.CLIPPED if p99 is not None and p99.clipped else None


TAIL = figure(_tail, WINDOW, SETTINGS)
_P99_QUALITY = figure(_clipped, TAIL)


def _row(
    metric: Metric,
    name: str,
    *fields: str,
    of_p99: bool = False,
    silent: frozenset[Role] = NEVER_SILENT,
) -> Row[object]:
    return gauge(
        metric,
        figure(_part_of(name, fields), WINDOW, TAIL),
        fields=fields,
        explained_by=_PROMPTS,
        silent=silent,
        sentences=_SENTENCES,
        quality=_P99_QUALITY if of_p99 else None,
    )


OBSERVED = _row(names.LONG_CONTEXT_REQUESTS_OBSERVED, "observed", _PROMPTS)
BEYOND = _row(names.LONG_CONTEXT_BEYOND_TOP_BUCKET, "beyond_top_bucket_ratio", _PROMPTS)
AMPLIFICATION = _row(names.LONG_CONTEXT_AMPLIFICATION, "amplification_ratio", _PROMPTS, of_p99=True)
SHARE = _row(names.LONG_CONTEXT_KV_SHARE, "kv_share_ratio", _PROMPTS, _OUTPUTS, silent=NOT_ON_A_FRONT_END)
FIT = _row(
    names.LONG_CONTEXT_REQUESTS_FIT,
    "requests_fit",
    _PROMPTS,
    _OUTPUTS,
    _CAPACITY,
    of_p99=True,
    silent=NOT_ON_A_FRONT_END,
)
ROWS = (OBSERVED, BEYOND, AMPLIFICATION, SHARE, FIT)


def shown_tail(found: Tail | None, role: Role) -> Tail | None:
    """The tail without what the role does not have."""
    if found is not None and role in SHARE.silent:
        return replace(found, kv_share_ratio=None, requests_fit={})
    return found
