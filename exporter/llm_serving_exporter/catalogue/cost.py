"""What GPU seconds cost, and who sent the requests of gateways."""

from __future__ import annotations

from functools import partial

from llm_serving_exporter.catalogue.spec import (
    SERVING_LABELS,
    WHY,
    WORKED_OUT,
    Group,
    Kind,
    Metric,
    Unit,
    declare_figure,
    list_declared,
)

# --- What serving costs: GPU seconds by state, USD by phase, prices in force, and what tokens and requests come to (docs/cost.md).


_NO_BOOK = "no price file is configured, or it does not state it"


_window = partial(declare_figure, Group.COST)
_counter = partial(_window, kind=Kind.COUNTER)


def _book(
    name: str, kind: Kind, unit: Unit, help: str, *labels: str, absent: str = _NO_BOOK, formula: str = ""
) -> Metric:
    return Metric(name, kind, unit, Group.COST, help, labels, absent, formula, "the price file")


GPU_SECONDS = _counter(
    "gpu_seconds_total", Unit.SECONDS,
    "GPU time of the engine by state (busy, idle, down, unknown) since the exporter's start; loading and sleeping count as idle; the state is unknown if the page cannot be read or reports no work.",
    "each tick's seconds x GPUs of the engine x gpu_target_share_ratio; unknown: also the part of a shared GPU that processes of no target take; busy: the share of the tick that gpu_busy_source tells, if a request ran or a token counter moved; rate: the rate in force, \"\" without a price",
    "state", "rate",
)  # fmt: skip
GPU_BUSY_SOURCE = Metric(
    "gpu_busy_source", Kind.GAUGE, Unit.BOOLEAN, Group.COST,
    "What says how long the target's GPUs were busy in its last busy tick, the best first: engine_time, gpm, nvml_samples, estimate, requests; 1 for the current source.",
    ("target", "source"), "no tick was busy since the exporter's start", "", WORKED_OUT,
)  # fmt: skip
COST = _counter(
    "cost_usd_total", Unit.USD,
    "Cost of the engine's GPU time by use (prefill, decode, idle, down, unattributed) since the exporter's start; the uses add up to all GPU time.",
    "each tick's GPU seconds x price / 3600, counted once; busy time is split by the method, and waits up to five minutes for the tokens it was spent on; unattributed: no tokens came in that time, no facts to split it by, state unknown, or the part of a shared GPU that processes of no target take",
    "phase", "rate", "method",
)  # fmt: skip
ENERGY = _counter(
    "energy_joules_total", Unit.JOULES,
    "Energy of the engine's GPUs since the exporter's start, in every state.",
    "increase of gpu_energy_joules_total of each of the target's GPUs x the target's share of that GPU, spread evenly over its engines",
)  # fmt: skip
ENERGY_COST = _counter(
    "energy_cost_usd_total", Unit.USD,
    "Cost of energy_joules_total if the rate in force has includes_power: false. It is not part of cost_usd_total.",
    "joules / 3.6e6 x usd_per_kwh x pue",
)  # fmt: skip
CARBON = _counter(
    "carbon_grams_total", Unit.GRAMS,
    "Carbon dioxide equivalent of energy_joules_total.",
    "joules / 3.6e6 x pue x carbon_grams_per_kwh",
)  # fmt: skip
SAVINGS = _counter(
    "prefix_cache_savings_usd_total", Unit.USD,
    "Minimum cost of computing the prompt tokens that were found in the prefix cache: capacity freed for other work, not cash saved.",
    "cached prompt tokens x seconds that a token's matrices need at the compute ceiling, attention left out, x GPUs x price / 3600",
)  # fmt: skip

COST_PER_MILLION = _window(
    "cost_usd_per_million_tokens", Unit.USD,
    "Cost of a million tokens over the window by phase (prefill: computed; decode: generated; blended: prompt as sent + generated).",
    "basis busy: cost of the phase / its tokens; basis allocated: that x all cost / (prefill + decode cost), so that idle and down time is borne by the tokens; blended: prefill + decode cost (busy) or all cost (allocated) / tokens",
    "phase", "basis", "method",
)  # fmt: skip
TOKENS_PER_USD = _window(
    "tokens_per_usd", Unit.TOKENS,
    "Prompt tokens as sent and generated tokens per USD over the window.",
    "tokens / all cost",
)  # fmt: skip
COST_PER_REQUEST = _window(
    "cost_usd_per_request_mean", Unit.USD,
    "Mean cost of a request over the window.",
    "all cost / requests finished for any reason",
)  # fmt: skip
ENERGY_PER_TOKEN = _window(
    "energy_joules_per_token", Unit.JOULES,
    "Energy per token (prompt as sent + generated) over the window, idle draw included.",
    "increase of energy_joules_total / tokens",
)  # fmt: skip
ATTRIBUTION = Metric(
    "cost_attribution_info", Kind.INFO, Unit.BOOLEAN, Group.COST,
    "How busy time is split into prefill and decode, and from what; constant 1.",
    (*SERVING_LABELS, "method", "inputs"), WHY, "", WORKED_OUT,
)  # fmt: skip
EFFICIENCY = _book(
    "cost_efficiency_ratio", Kind.GAUGE, Unit.RATIO,
    "Assumed share of a peak that work reaches, for splitting busy time by the method roofline.",
    "ceiling", absent="cost is not configured",
)  # fmt: skip
PRICE = _book(
    "gpu_price_usd_per_hour", Kind.GAUGE, Unit.USD,
    "Price per GPU and hour that is in force for the target.",
    "target", "gpu_name", "rate", absent="no price, or an ambiguous one: signal_available{signal=\"cost_usd_total\"} has the reason",
    formula="the statement for the target, else for its node, else for its GPU model; of each the one with the latest valid-from that has passed (UTC)",
)  # fmt: skip
RATE_INFO = _book(
    "rate_info", Kind.INFO, Unit.BOOLEAN, "Rates of the price file; constant 1.", "rate", "kind", "includes_power",
)  # fmt: skip
COMMITTED_GPUS = _book(
    "rate_committed_gpus", Kind.GAUGE, Unit.COUNT, "GPUs committed at a rate now, whether used or not.", "rate",
)  # fmt: skip
BUDGET = _book("cost_budget_usd_per_month", Kind.GAUGE, Unit.USD, "Budget per month of 730 hours.")

COSTS = list_declared(globals())


# --- Who sent the requests of gateways. Only where `tenants.by` asks for it.


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
REQUESTS = _count("tenant_requests_finished_total", Unit.COUNT, "Requests that the gateway counts as finished, by tenant.")  # fmt: skip
TENANTS = (PROMPT_TOKENS, CACHED_TOKENS, DECODE_TOKENS, REQUESTS)
