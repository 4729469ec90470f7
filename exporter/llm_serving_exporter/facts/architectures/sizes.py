"""Sizes that hybrids and encoders read alike, checked against one another."""

from __future__ import annotations

from llm_serving_exporter.facts.fields import Fields
from llm_serving_exporter.model.record import Struct


class Heads(Struct, frozen=True):
    """Attention heads of a layer."""

    queries: int
    kv: int  # key and value heads
    size: int  # elements of one head


def heads(fields: Fields, hidden: int, *, queries: str = "num_attention_heads", size: str | None = "head_dim") -> Heads:
    """The heads as the config says; where it leaves the size out (or the family has none, `size` None), the hidden size shared among them.

    Raises FactsError that names the key where they do not divide.
    """
    count = fields.whole(queries)
    kv = fields.whole("num_key_value_heads", default=count)
    if count % kv:
        raise fields.refused("num_key_value_heads", f"is {kv}, which does not divide the {count} heads")
    if size is not None and fields.has(size):
        return Heads(count, kv, fields.whole(size))
    if hidden % count:
        raise fields.refused(queries, f"is {count}, which does not divide the hidden size {hidden}")
    return Heads(count, kv, hidden // count)


def experts(fields: Fields, key: str) -> tuple[int, int]:
    """Routed experts, and how many of them a token passes."""
    count, passed = fields.whole(key), fields.whole("num_experts_per_tok")
    if passed > count:
        raise fields.refused("num_experts_per_tok", f"is {passed}, more than the {count} experts of {key}")
    return count, passed
