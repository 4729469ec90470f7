"""Small formulas of capacity and cost planning. None where a divisor is not above 0: no answer is better than a wrong one."""

from __future__ import annotations

import math

from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.record import Struct

_MILLION = 1_000_000
_SECONDS_PER_HOUR = 3600
# a quotient that is whole but for rounding must not cost one more replica
_ROUNDING = 1e-9


class Replicas(Struct, frozen=True):
    """Replicas that a load needs."""

    # as the formula gives it
    needed: float
    # rounded up
    whole: int


def usd_per_million_tokens(usd_per_hour: float, tokens_per_second: float) -> float | None:
    """Price of a million tokens from the price of all GPUs and their throughput."""
    if tokens_per_second <= 0:
        return None
    return usd_per_hour / (tokens_per_second * _SECONDS_PER_HOUR) * _MILLION


def usd_per_request(usd_per_million: float, input_tokens: float, output_tokens: float) -> float:
    """Cost of a request where every token costs the same."""
    return usd_per_million * (input_tokens + output_tokens) / _MILLION


def usd_of_ownership(gpus: float, usd_per_gpu_hour: float, hours: float, *other_usd: float) -> float:
    """GPU hours and everything else."""
    return gpus * usd_per_gpu_hour * hours + add_up(other_usd)


def months_to_break_even(once_usd: float, monthly_usd_before: float, monthly_usd_after: float) -> float | None:
    """Months until a saving has paid for itself; None where nothing is saved."""
    saved = monthly_usd_before - monthly_usd_after
    return once_usd / saved if saved > 0 else None


def target_utilisation(headroom: float) -> float | None:
    """Share of its throughput that a replica may use so that `headroom` (0.3: 30 % above the expected peak) is left."""
    return 1 / (1 + headroom) if headroom > -1 else None


def replicas(
    peak_requests_per_second: float, input_tokens: float, output_tokens: float, tokens_per_second_per_replica: float,
    target_utilisation: float, redundancy: float = 1.0,
) -> Replicas | None:  # fmt: skip
    """Replicas for a peak load. `tokens_per_second_per_replica` counts the same tokens as the load: prompt and output together."""
    usable = tokens_per_second_per_replica * target_utilisation
    if not usable > 0:
        return None
    needed = peak_requests_per_second * (input_tokens + output_tokens) / usable * redundancy
    if not math.isfinite(needed):
        return None
    return Replicas(needed, max(0, math.ceil(needed - _ROUNDING)))


def concurrency(requests_per_second: float, seconds_per_request: float) -> float:
    """Little's law: requests that are in the system on average."""
    return requests_per_second * seconds_per_request


def request_seconds(first_token_seconds: float, step_seconds: float, output_tokens: float) -> float:
    """Time of one request: the first token comes out of the prefill, each further one takes a step."""
    return first_token_seconds + max(0.0, output_tokens - 1) * step_seconds


def speculated_tokens(acceptance: float, drafts: int) -> float | None:
    """Mean tokens of a sequence-step with `drafts` drafted tokens, each accepted with probability `acceptance` if those before it were
    (Leviathan et al. 2023, arXiv 2211.17192): 1 + a + a^2 + ... + a^g. None outside of 0 to 1 and for a negative number of drafts."""
    if not 0 <= acceptance <= 1 or drafts < 0:
        return None
    if acceptance == 1:
        return 1.0 + drafts
    return (1 - acceptance ** (drafts + 1)) / (1 - acceptance)
