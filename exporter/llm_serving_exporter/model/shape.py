"""A model's shape and weights: its matrices and their bytes, what attention keeps and reads per token, the state of its recurrent layers.

Formulas: each architecture's rows in `facts`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.record import Struct


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


class Module(Struct, frozen=True):
    """One kind of module, at every layer that has it."""

    path: str  # its Hugging Face name, with `{}` for the layer's index and `*` for an expert's
    part: Part  # what it is to a decode step
    matrix: int  # parameters of its weight matrix in one layer, or of one expert where `copies` > 1
    vector: int = 0  # parameters of its bias or norm, which no quantiser touches
    rows: int = 0  # out features of the matrix; 0: `matrix` sums several, or there is none
    columns: int = 0  # in features of the matrix; 0 likewise
    layers: tuple[int, ...] = ()  # indices of the layers that have it; (): it is outside of the layers, and there once
    linear: bool = True  # quantisers take it; embeddings, convolutions and norms are not
    copies: int = 1  # routed experts of a layer; 1: not an expert
    per_token: int = 1  # of these, how many a token passes

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
    SPARSE = "sparse"  # those `top_entries` of all that is kept which an indexer picks
    CROSS = "cross"  # an encoder's tokens, of which decode adds none


class Indexer(Struct, frozen=True):
    """What picks the entries that sparse attention reads. It reads a key of its own for every entry, however few are picked."""

    layers: int  # that have one; the others of the group take what the one before them picked
    key_bytes: float  # stored per entry and layer, in a precision of its own whatever the KV cache's, scales included
    flops: int  # per token computed, entry scored, and layer


class AttentionLayers(Struct, frozen=True):
    """Attention layers that are alike. One that keeps two kinds of entries (DeepSeek-V4) counts in two of these.

    FLOPs are per token computed, entry looked at, and layer. An entry stands for one token of context, or for `compress_ratio` of them.
    """

    layers: int
    kv_elements: int  # stored, and read, per entry and layer: KV heads x (key + value size); MLA: latent and rotary
    kv_heads: int  # beyond this number tensor-parallel ranks hold copies; MLA: 1
    decode_flops: int  # MLA: in the absorbed form; 0: an encoder
    prefill_flops: int  # MLA: with keys and values of each head expanded from the latent
    span: Span = Span.FULL  # how far back a token looks
    window_tokens: int | None = None  # of a sliding or chunked span; None: of another
    heads: int = 0  # of queries, which engines divide among tensor-parallel ranks; 0: not known
    compress_ratio: int = 1  # tokens that one entry stands for
    top_entries: int | None = None  # of a sparse span; None: of another
    indexer: Indexer | None = None  # of a sparse span; None: these layers take what other layers' picked
    kept: bool = True  # False: these layers read once more what others keep
    encoder_tokens: int | None = None  # that cross attention reads of a sequence; None: it depends on the input

    @property
    def token_elements(self) -> float:
        """KV elements per token of context and layer."""
        return 0.0 if self.span is Span.CROSS else self.kv_elements / self.compress_ratio

    @property
    def most_tokens(self) -> int | None:
        """Tokens of context that a layer's reads stop growing at; None: they do not."""
        return self.window_tokens if self.top_entries is None else self.top_entries * self.compress_ratio

    def tokens_read(self, context_tokens: float) -> float:
        """Tokens of context that one layer looks at; for a chunked layer, which looks back to the start of its chunk, an upper bound."""
        most = self.most_tokens
        return context_tokens if most is None else min(context_tokens, most)

    def index_bytes(self) -> float:
        """An indexer's keys per token of context, over the layers that have one; 0 without one."""
        return 0.0 if self.indexer is None else self.indexer.layers * self.indexer.key_bytes / self.compress_ratio

    def index_flops(self) -> float:
        """An indexer's FLOPs per token computed and token of context, over the layers that have one; 0 without one."""
        return 0.0 if self.indexer is None else self.indexer.layers * self.indexer.flops / self.compress_ratio


class RecurrentLayers(Struct, frozen=True):
    """Recurrent layers that are alike. Every step reads and writes the whole state of each of its sequences."""

    layers: int
    ssm_elements: int  # per sequence and layer, kept in the engine's state dtype (float32 unless it says otherwise)
    conv_elements: int  # of the convolution, per sequence and layer, kept in the model's dtype
    # "auto" is float32 for it too (Kimi Delta Attention; vLLM's mamba_utils.py, kda_state_dtype)
    float32_by_default: bool = False


@dataclass(frozen=True, slots=True)
class Geometry:
    """The shape of one model's language part."""

    family: str  # name of the architecture, as config.json's model_type has it
    modules: tuple[Module, ...]  # every parameter is in one of them
    attention: tuple[AttentionLayers, ...]  # (): no layer has attention
    hidden_size: int  # elements of a token's vector between layers
    layers: int  # of every kind together
    vocabulary: int  # tokens that the embedding table has
    recurrent: tuple[RecurrentLayers, ...] = ()  # (): none
    encoder: bool = False  # whether it only embeds: no decode and no KV cache
    mla: bool = False  # whether attention keeps a latent vector for all heads (DeepSeek)
    left_out: tuple[str, ...] = ()  # what of the checkpoint is not counted ("vision tower"); (): everything is
    bidirectional: bool = False  # each token looks at its whole sequence: s x s, others s (s + 1) / 2
    # why nobody knows what a step reads of the context; weights and what is stored hold all the same
    reads_unknown: str = ""
    experts: int = field(init=False, repr=False, compare=False)  # routed experts of a layer; 0 for a dense model
    experts_per_token: int = field(init=False, repr=False, compare=False)  # 0 for a dense model

    def __post_init__(self) -> None:
        routed = [module for module in self.modules if module.part is Part.EXPERT]
        # asked for in every tick, dozens of times
        object.__setattr__(self, "experts", max((module.copies for module in routed), default=0))
        object.__setattr__(self, "experts_per_token", max((module.per_token for module in routed), default=0))

    def _sum(self, parts: Iterable[Part] | None = None, *, active: bool = False) -> int:
        wanted = None if parts is None else frozenset(parts)
        return add_up(
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

    def kv_elements_stored(self) -> float:
        """KV elements per token, every attention layer that keeps what it reads counted in full."""
        return add_up(group.layers * group.token_elements for group in self.attention if group.kept)

    def index_bytes_stored(self) -> float:
        """Bytes per token of the keys that indexers keep beside the KV cache."""
        return add_up(group.index_bytes() for group in self.attention)


class Precision(StrEnum):
    """Tensor-core rates that a GPU's data sheet states apart. fp16 runs at bf16's rate wherever both exist."""

    FP32 = "fp32"
    BF16 = "bf16"
    FP8 = "fp8"
    INT8 = "int8"
    FP4 = "fp4"


class WeightFormat(Struct, frozen=True):
    """How matrices are stored, and in what precision they are multiplied at best."""

    name: str  # such as "fp8" or "int4_g128"
    bits: float  # per stored weight, scales and zero points included (facts model-math D.5)
    multiplied: Precision  # on a GPU with a native path (W8A8 fp8: FP8; weight-only: BF16); one without runs at BF16

    @property
    def bytes(self) -> float:
        """Bytes per weight."""
        return self.bits / 8


class WeightGroup(Struct, frozen=True):
    """The weights that one format keeps, sorted by how a step touches them. Bytes are floats because of fractional bits.

    The `_parameters` are those of matrices, for FLOPs: 2 for each that a token passes.
    """

    format: WeightFormat  # of all of them
    fixed_bytes: float = 0.0  # read whole by every step: all but routed experts, input embedding and lm_head
    fixed_parameters: int = 0  # of the same matrices
    # of `fixed_bytes`: dense MLPs and shared experts, which may be spread over ranks whose attention is not
    ffn_bytes: float = 0.0
    lm_head_bytes: float = 0.0  # read whole by every step that has tokens to sample
    lm_head_parameters: int = 0  # of the same matrix
    expert_bytes: float = 0.0  # of one routed expert, summed over the layers that have it
    expert_parameters: int = 0  # of the same matrices
    embedding_bytes: float = 0.0  # kept in memory; a step reads as good as nothing of them


class ModelFacts(Struct, frozen=True):
    """Everything that is known about the model a target serves."""

    name: str  # as served, else as in the catalogue
    origin: str  # where geometry and formats come from, in words
    geometry: Geometry
    groups: tuple[WeightGroup, ...]  # one a format
    kv_bytes_per_element: float  # of the KV cache, which has a dtype of its own
    kv_format: str  # name of that dtype
    state_bytes_per_element: float = 4.0  # of recurrent state
    checkpoint_bytes: int | None = None  # as stored, by the server or a safetensors index; None: neither says it
    estimate_sound: bool = False  # whether vLLM's own byte estimate knows these formats (facts E.5)
    formats_assumed: bool = False  # nothing said how weights or KV cache are stored: the usual format was taken
    weights_assumed: bool = False  # and the weights' is not even in the catalogue's row
    context_limit_tokens: int | None = None  # positions that the config is made for; None: it does not say
    notes: tuple[str, ...] = ()  # sentences about what could not be read or does not fit together

    @property
    def weight_bytes(self) -> float:
        """Bytes of all weights as kept in GPU memory, by our arithmetic."""
        experts = self.geometry.experts
        return add_up(
            group.fixed_bytes + group.lm_head_bytes + group.embedding_bytes + experts * group.expert_bytes
            for group in self.groups
        )

    @property
    def kv_bytes_per_token(self) -> float:
        """KV bytes stored per token, each attention layer in full, indexers' keys included."""
        return self.geometry.kv_elements_stored() * self.kv_bytes_per_element + self.geometry.index_bytes_stored()

    def state_bytes_per_sequence(self) -> float:
        """Bytes of recurrent state of one sequence; convolution state is kept in 2 bytes an element."""
        return add_up(group.layers * self.layer_state_bytes(group) for group in self.geometry.recurrent)

    def layer_state_bytes(self, group: RecurrentLayers) -> float:
        """The same of one of these layers."""
        return group.ssm_elements * self.state_bytes_per_element + group.conv_elements * 2
