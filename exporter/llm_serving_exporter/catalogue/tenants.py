"""Who sent the requests of gateways. Only where `tenants.by` asks for it."""

from __future__ import annotations

from llm_serving_exporter.catalogue.spec import Group, Kind, Metric, Unit

_ABSENT = "tenants.by is off, the target is an engine, or its page knows no tenants; signal_available has the reason"


def _count(name: str, unit: Unit, help: str) -> Metric:
    labels = ("target", "model_name", "role", "tenant", "kind")
    formula = (
        "growth of the gateway's counter since the exporter began to read it; a new tenant's stays at 0 for a minute"
    )
    return Metric(name, Kind.COUNTER, unit, Group.TENANTS, help, labels, _ABSENT, formula)


PROMPT_TOKENS = _count(
    "tenant_prompt_tokens_total",
    Unit.TOKENS,
    "Prompt tokens as sent, by tenant: unlabelled where a request names none, other beyond tenants.limit, withheld for an e-mail address.",
)
CACHED_TOKENS = _count(
    "tenant_cached_prompt_tokens_total",
    Unit.TOKENS,
    "Prompt tokens that the engine had in its prefix cache, by tenant, as far as its answers say them to the gateway.",
)
DECODE_TOKENS = _count("tenant_decode_tokens_total", Unit.TOKENS, "Generated tokens, by tenant.")
REQUESTS = _count(
    "tenant_requests_finished_total", Unit.COUNT, "Requests that the gateway counts as finished, by tenant."
)
TENANTS = (PROMPT_TOKENS, CACHED_TOKENS, DECODE_TOKENS, REQUESTS)
