"""The signals that are passed through: a field of the page under its own name, its reason where it is absent."""

from __future__ import annotations

from collections.abc import Mapping

from llm_serving_exporter.derive.signals import NEVER_SILENT, NO_SENTENCES, NOT_ON_A_FRONT_END
from llm_serving_exporter.model.record import Struct, field
from llm_serving_exporter.model.snapshot import (
    COUNTER_FIELDS,
    GAUGE_FIELDS,
    HISTOGRAM_FIELDS,
    LABELLED_COUNTER_FIELDS,
    Absence,
)
from llm_serving_exporter.model.target import Role

PASSED_THROUGH = (*COUNTER_FIELDS, *LABELLED_COUNTER_FIELDS, *HISTOGRAM_FIELDS, *GAUGE_FIELDS)
# its absence shows that the runtime publishes nothing of its work
WORK_FIELD = "decode_tokens_total"

SET_THE_BATCH_LIMIT = (
    "Set targets[].batch_limit_requests to the most requests that the engine runs at once; it does not say so itself "
    "(vLLM does with VLLM_SERVER_DEV_MODE=1, in /server_info)."
)
_SPECULATION = {Absence.NOT_EXPORTED: "Engines show it only with speculative decoding on."}


class PageField(Struct, frozen=True):
    """What is to know about a field of the page beside its value."""

    # whether a setting gives the field where the page lacks it: then it is absent as NOT_CONFIGURED
    has_setting: bool = False
    # the roles in which the field means something else: it is absent as OTHER_ROLE
    silent: frozenset[Role] = NEVER_SILENT
    # what to do, for the reasons of which this field knows more than the reason's own sentence
    sentences: Mapping[Absence, str] = field(default_factory=lambda: NO_SENTENCES)


PAGE_FIELDS: Mapping[str, PageField] = {
    **dict.fromkeys(PASSED_THROUGH, PageField()),
    "speculative_draft_tokens_total": PageField(sentences=_SPECULATION),
    "speculative_accepted_tokens_total": PageField(sentences=_SPECULATION),
    "requests_running": PageField(silent=NOT_ON_A_FRONT_END),
    "batch_limit_requests": PageField(
        has_setting=True,
        silent=NOT_ON_A_FRONT_END,
        sentences={Absence.NOT_CONFIGURED: SET_THE_BATCH_LIMIT},
    ),
    "kv_cache_usage_ratio": PageField(silent=NOT_ON_A_FRONT_END),
    "kv_cache_capacity_tokens": PageField(silent=NOT_ON_A_FRONT_END),
    "context_limit_tokens": PageField(
        has_setting=True,
        sentences={
            Absence.NOT_CONFIGURED: (
                "Set targets[].context_limit_tokens to the engine's longest context; its /v1/models does not say it."
            )
        },
    ),
}
