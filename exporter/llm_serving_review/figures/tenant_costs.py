"""What the division of the spend by tenant comes to: rows, and how far gateways and engines agree."""

from __future__ import annotations

from math import fsum

from llm_serving_exporter.model.record import Struct
from llm_serving_review.figures.formulas import usd_per_million

# beyond these a reader should know why
LEAST_SCALE, MOST_SCALE = 0.9, 1.1

Fleet = tuple[str, ...]


class TenantCost(Struct, frozen=True):
    """One tenant's tokens of one model as the gateway counted them, and its part of what the engines cost. Nothing is below 0."""

    tenant: str  # the tenant's name as it is published; "" for what no tenant explains
    kind: str  # team, key, user, header or adapter; "" for what no tenant explains
    fleet: Fleet  # values of the identity labels of the fleet
    model_name: str  # as the engine serves it; of an external model as it was asked for
    served: bool  # whether engines serve the model; else it has no cost here
    prompt_tokens: float  # prompt tokens as sent
    # of these, what was cached: as the gateway knows it, else by the model's mean; None where no engine serves the model and none are known
    cached_tokens: float | None
    cached_is_mean: bool  # whether that is the model's mean
    decode_tokens: float  # generated tokens
    requests: float | None  # finished requests; None where no gateway counts them
    prefill_usd: float = 0.0
    decode_usd: float = 0.0
    prefill_rest_usd: float = 0.0  # of idle, down and unattributed time, as much of it as goes with prefill
    decode_rest_usd: float = 0.0  # ... with decode; of hours without prefill and decode all of it

    @property
    def busy_usd(self) -> float:
        """Of prefill and decode."""
        return self.prefill_usd + self.decode_usd

    @property
    def rest_usd(self) -> float:
        """Of idle, down and unattributed time."""
        return self.prefill_rest_usd + self.decode_rest_usd

    @property
    def usd(self) -> float:
        """All of it."""
        return self.busy_usd + self.rest_usd

    @property
    def input_usd_per_million(self) -> float | None:
        """USD a million prompt tokens as sent."""
        return usd_per_million(self.prefill_usd + self.prefill_rest_usd, self.prompt_tokens) if self.served else None

    @property
    def uncached_usd_per_million(self) -> float | None:
        """USD a million prompt tokens that were not cached, with cached ones at 0: together the same money."""
        computed = self.prompt_tokens - (self.cached_tokens or 0.0)
        return usd_per_million(self.prefill_usd + self.prefill_rest_usd, computed) if self.served else None

    @property
    def output_usd_per_million(self) -> float | None:
        """USD a million generated tokens."""
        return usd_per_million(self.decode_usd + self.decode_rest_usd, self.decode_tokens) if self.served else None


class Scale(Struct, frozen=True):
    """How much more or less the engines counted than the gateway, of one model in the hours in which both counted."""

    fleet: Fleet  # values of the identity labels of the fleet
    model_name: str  # as the engine serves it
    prompt: float | None  # engines' over gateway's prompt tokens; None where either counted none
    decode: float | None  # the same of generated tokens

    @property
    def flagged(self) -> bool:
        """Whether either is so far from 1 that the reader should know why."""
        return any(value is not None and not LEAST_SCALE <= value <= MOST_SCALE for value in (self.prompt, self.decode))


class TenantSplit(Struct, frozen=True):
    """The whole spend by tenant: the rows and what no tenant explains add up to it."""

    rows: tuple[TenantCost, ...]  # the most expensive first, external ones last
    unexplained: tuple[TenantCost, ...]  # what no tenant explains, by model, the most expensive first
    scales: tuple[Scale, ...]  # by model that gateways and engines both count

    @property
    def usd(self) -> float:
        """The whole spend."""
        return fsum(row.usd for row in (*self.rows, *self.unexplained))

    @property
    def unexplained_usd(self) -> float:
        """What no tenant explains."""
        return fsum(row.usd for row in self.unexplained)
