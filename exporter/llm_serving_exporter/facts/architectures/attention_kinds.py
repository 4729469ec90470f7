"""Grouped-query attention whose layers differ: other heads or head sizes by kind of layer, values of another size than keys, keys and
values that another layer keeps."""

from __future__ import annotations

from llm_serving_exporter.facts import parts
from llm_serving_exporter.facts.parts import Layers
from llm_serving_exporter.model.geometry import AttentionLayers, Module, Part, Span
from llm_serving_exporter.model.record import Struct


class Kind(Struct, frozen=True):
    """Attention of one kind of layer."""

    heads: int  # query heads
    kv_heads: int  # key and value heads
    key_size: int  # elements of a query or a key of one head
    value_size: int  # elements of a value of one head
    window_tokens: int | None = None  # tokens that it looks back; None: all

    def queries(self, prefix: str, hidden: int, layers: Layers, *, bias: bool = False) -> tuple[Module, ...]:
        """q and o, which every layer of the kind has."""
        return (
            parts.linear(f"{prefix}q_proj", Part.ATTENTION, self.heads * self.key_size, hidden, layers, bias=bias),
            parts.linear(f"{prefix}o_proj", Part.ATTENTION, hidden, self.heads * self.value_size, layers, bias=bias),
        )

    def keys(
        self, prefix: str, hidden: int, layers: Layers, *, bias: bool = False, values: bool = True
    ) -> tuple[Module, ...]:
        """k and v, which only layers that keep their own KV have; `values` False: keys serve as values, from the one matrix."""
        rows = {"k_proj": self.kv_heads * self.key_size}
        if values:
            rows["v_proj"] = self.kv_heads * self.value_size
        return tuple(
            parts.linear(prefix + name, Part.ATTENTION, size, hidden, layers, bias=bias) for name, size in rows.items()
        )

    def reads(self, layers: int, *, kept: bool = True) -> tuple[AttentionLayers, ...]:
        """What so many layers keep, read and compute; () for none. Keys that serve as values are kept twice, with and without rotation."""
        if not layers:
            return ()
        flops = 2 * self.heads * (self.key_size + self.value_size)
        stored = self.kv_heads * (self.key_size + self.value_size)
        span = Span.FULL if self.window_tokens is None else Span.SLIDING
        group = AttentionLayers(
            layers, stored, self.kv_heads, flops, flops, span, self.window_tokens, self.heads, kept=kept
        )
        return (group,)
