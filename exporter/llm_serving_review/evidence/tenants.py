"""What gateways counted by tenant, by hour: a part of the evidence of its own, because only some fleets have it."""

from __future__ import annotations

from llm_serving_exporter.catalogue import tenants as series
from llm_serving_exporter.model.record import Struct
from llm_serving_review.evidence.fetch import Reader
from llm_serving_review.evidence.names import Quantity
from llm_serving_review.evidence.usage import Line
from llm_serving_review.evidence.week import Week

_OF = ("tenant", "kind")
# tokens first: where nobody has any of them, the others are not asked for
QUANTITIES = {
    "decode": Quantity("tenants' generated tokens", series.DECODE_TOKENS.name, _OF, ""),
    "prompt": Quantity("tenants' prompt tokens", series.PROMPT_TOKENS.name, _OF, ""),
    "cached": Quantity("tenants' cached tokens", series.CACHED_TOKENS.name, _OF, ""),
    "requests": Quantity("tenants' requests", series.REQUESTS.name, _OF, ""),
}
# prompt and generated
_KINDS_OF_TOKENS = 2


class TenantUsage(Struct, frozen=True):
    """Growth of gateways' counters by hour of a week; labels tenant, kind. The owners' models are named as engines serve them."""

    decode: tuple[Line, ...] = ()  # generated tokens
    prompt: tuple[Line, ...] = ()  # prompt tokens as sent
    cached: tuple[Line, ...] = ()  # of these, what the engine's answers said to have been cached; () where they do not
    requests: tuple[Line, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether no gateway counted any token."""
        return not any(line.total for line in (*self.prompt, *self.decode))


def read_tenants(reader: Reader, week: Week) -> TenantUsage:
    """The counters of a week; pairs of exporters count once. What cannot be read is named in `reader.missing`."""
    found: dict[str, tuple[Line, ...]] = {}
    for name, quantity in QUANTITIES.items():
        lines = reader.attempt(f"{quantity.name} of {week.name}", reader.lines, quantity, week)
        found[name] = lines or ()
        # a gateway of embeddings, or one that counts prompts only, has no generated ones
        if len(found) == _KINDS_OF_TOKENS and not any(found.values()):
            return TenantUsage()
    return TenantUsage(**found)
