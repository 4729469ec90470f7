"""A model's shape: its matrices, what its attention layers keep and read per token, the state of its recurrent layers.

Counts only; bytes come with the weight formats (model/weights.py). Formulas: each architecture's builder in `facts`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum


class Part(StrEnum):
    """What a module is to a decode step."""

    EMBEDDING = "embedding"  # input table: a row a token, so that a step reads as good as nothing of it
    LM_HEAD = "lm_head"  # read whole by each step; where embeddings are tied this is the one table there is
    ATTENTION = "attention"
    FFN = "ffn"  # dense MLP, and the shared experts that each token passes
    EXPERT = "expert"  # routed: a token passes `per_token` of `copies`
    ROUTER = "router"
    RECURRENT = "recurrent"  # Mamba, gated DeltaNet
    NORM = "norm"  # norms, sinks and other vectors
    ENCODER_ONLY = "encoder_only"  # poolers, position tables: there, but not passed by every token


@dataclass(frozen=True, slots=True)
class Module:
    """One kind of module, at every layer that has it.

    `path` is its Hugging Face name with `{}` for the layer's index and `*` for an expert's; `layers` the indices, () for a module
    outside of the layers (which then is there once). `matrix` counts the parameters of its weight matrix in one layer (of one expert where
    `copies` > 1), `vector` those of its bias or norm, which no quantiser touches. `rows` x `columns` (out x in features) is the
    matrix where the module is one, 0 x 0 where `matrix` sums several or there is none. `linear`: a Linear module, which quantisers
    take; embeddings, convolutions and norms are not. `copies` routed experts, of which a token passes `per_token`.
    """

    path: str
    part: Part
    matrix: int
    vector: int = 0
    rows: int = 0
    columns: int = 0
    layers: tuple[int, ...] = ()
    linear: bool = True
    copies: int = 1
    per_token: int = 1

    @property
    def places(self) -> int:
        """How often it is there, experts not counted."""
        return len(self.layers) or 1

    @property
    def parameters(self) -> int:
        """All parameters, over every layer and expert."""
        return (self.matrix + self.vector) * self.copies * self.places

    @property
    def active(self) -> int:
        """Parameters that one token passes, over every layer."""
        return (self.matrix + self.vector) * self.per_token * self.places


class Span(StrEnum):
    """How far back an attention layer looks."""

    FULL = "full"
    SLIDING = "sliding"  # the last `window_tokens`
    CHUNKED = "chunked"  # from the start of the chunk of `window_tokens` that the token stands in


@dataclass(frozen=True, slots=True)
class AttentionLayers:
    """Attention layers that are alike.

    `kv_elements` are stored per token and layer, and read for each token of context that the layer looks at: 2 x KV heads x head size;
    MLA: latent + rotary part, once. `kv_heads`: tensor-parallel ranks beyond this number hold copies (MLA: 1).
    FLOPs are per token computed, token of context looked at, and layer; decode in the absorbed form for MLA.
    """

    layers: int
    kv_elements: int
    kv_heads: int
    decode_flops: int
    prefill_flops: int
    span: Span = Span.FULL
    window_tokens: int | None = None

    def tokens_read(self, context_tokens: float) -> float:
        """Tokens of context that one layer looks at. A chunked layer looks back to the start of its chunk: at most the chunk is said."""
        return context_tokens if self.window_tokens is None else min(context_tokens, self.window_tokens)


@dataclass(frozen=True, slots=True)
class RecurrentLayers:
    """Recurrent layers that are alike: elements of state per sequence and layer, read and written by every step.

    `ssm_elements` are kept in the engine's state dtype (float32 unless it says otherwise), `conv_elements` in the model's.
    """

    layers: int
    ssm_elements: int
    conv_elements: int


@dataclass(frozen=True, slots=True)
class Geometry:
    """The shape of one model's language part.

    `family`: the architecture's name as in config.json's model_type. `encoder`: no decode and no KV cache. `left_out`: what of the
    checkpoint is not counted ("vision tower"), () where nothing is. `tied`: input embedding and lm_head are one table.
    `bidirectional`: each token looks at its whole sequence, so that s tokens look at s x s; others at s (s + 1) / 2.
    """

    family: str
    modules: tuple[Module, ...]
    attention: tuple[AttentionLayers, ...]
    hidden_size: int
    layers: int
    vocabulary: int
    recurrent: tuple[RecurrentLayers, ...] = ()
    encoder: bool = False
    mla: bool = False
    left_out: tuple[str, ...] = ()
    bidirectional: bool = False
    # routed experts of a layer, and of those how many a token passes; 0 for a dense model
    experts: int = field(init=False, repr=False, compare=False)
    experts_per_token: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        routed = [module for module in self.modules if module.part is Part.EXPERT]
        # asked for in every tick, dozens of times
        object.__setattr__(self, "experts", max((module.copies for module in routed), default=0))
        object.__setattr__(self, "experts_per_token", max((module.per_token for module in routed), default=0))

    def _sum(self, parts: Iterable[Part] | None = None, *, active: bool = False) -> int:
        wanted = None if parts is None else frozenset(parts)
        return sum(
            module.active if active else module.parameters
            for module in self.modules
            if wanted is None or module.part in wanted
        )

    @property
    def parameters_total(self) -> int:
        """Every parameter once (a tied table once)."""
        return self._sum()

    @property
    def parameters_active(self) -> int:
        """Parameters that one token passes, both embeddings included."""
        return self._sum(active=True)

    @property
    def decode_read_parameters(self) -> int:
        """What one decode step of one sequence reads: active parameters without the input embedding, which only tied models read."""
        left_out = self._sum((Part.EMBEDDING, Part.ENCODER_ONLY), active=True)
        return self.parameters_active - left_out

    @property
    def tied(self) -> bool:
        """Whether one table serves as input embedding and lm_head."""
        parts = {module.part for module in self.modules}
        return Part.LM_HEAD in parts and Part.EMBEDDING not in parts

    def kv_elements_stored(self) -> int:
        """KV elements per token, every attention layer counted in full."""
        return sum(group.layers * group.kv_elements for group in self.attention)

    def kv_elements_read(self, context_tokens: float) -> float:
        """KV elements that one sequence's decode step reads at a context length, windows and chunks respected."""
        return sum(group.layers * group.kv_elements * group.tokens_read(context_tokens) for group in self.attention)
