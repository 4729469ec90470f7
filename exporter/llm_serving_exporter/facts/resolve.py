"""What is believed about a model: configuration, then the server, then the model's files, then the built-in catalogue by name.

Geometry comes from one place: the files where there are some, else the catalogue's row. Formats come from the first that says them. The
stored size of a checkpoint is a fact of its own: `ModelFacts.checkpoint_bytes` is what takes up memory, while a step's reads are worked out
from geometry and formats, tensor by tensor, since the one number cannot be split. Where the two differ by more than 2 %, a note says so:
a checkpoint may hold what a step does not read (vision tower, multi-token prediction), or these may not be its formats.

A server that states the size of what it loaded (llama.cpp) knows better than the name of a GGUF mix, whose bits depend on the model: bits
per weight are then that size over the parameters, where it is not far from what the name says, or the name says nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from llm_serving_exporter.errors import FactsError
from llm_serving_exporter.facts import formats, names, quantisation
from llm_serving_exporter.facts.architectures import family, geometry, language
from llm_serving_exporter.facts.fields import LARGEST, Fields, model_unknown
from llm_serving_exporter.facts.models import ModelEntry, ModelFiles, name_of
from llm_serving_exporter.facts.quant_dialects import Settings
from llm_serving_exporter.model.record import Struct, replace
from llm_serving_exporter.model.shape import Geometry, ModelFacts, Precision, WeightFormat
from llm_serving_exporter.model.target import ModelSettings, ServedModel

CHECKPOINT_TOLERANCE_RATIO = 0.02
_HUB_ID = re.compile(r"[^/]+/[^/]+")
# what to do in the daemon's configuration: `FactsError.fix`
SET_MODEL = (
    "set targets[].model.config to its config.json or the folder that holds it, "
    "or targets[].model.name to the model of the catalogue that has the same sizes"
)
SET_FORMAT = "set targets[].model.weight_format, or targets[].model.config to its config.json"
SET_KV_DTYPE = "set targets[].model.kv_cache_dtype"
_STATE_BYTES = 4.0
# words for a KV cache's format that may be a family's own layout
_WORDS_OF_FAMILIES = ("auto", "fp8", "fp8_e4m3")
# what a stated size may say of bits per weight; and how far it may be from the mean that a GGUF mix has in another model: further off,
# it is not of these weights
_FEWEST_BITS, _MOST_BITS, _SIZE_TOLERANCE = 1.0, 33.0, 1.5
_POSITIONS = ("max_position_embeddings", "n_positions")
_POSITIONS_FROM_PADDING = frozenset({"roberta", "xlm-roberta", "camembert"})


class Finder(Protocol):
    """A catalogue of models."""

    def find(self, text: str) -> names.Match[ModelEntry]:
        """The row that a name or path means. Raises FactsError (model_unknown)."""


class _Source(Struct, frozen=True):
    """Where the geometry comes from."""

    name: str  # model name or path, for messages
    origin: str  # path of config.json, or which row of the catalogue: the first part of `ModelFacts.origin`
    config: Mapping[str, Any]  # content of config.json, or of the catalogue's row
    hf_quant_config: Mapping[str, Any] | None = None  # ModelOpt's file; None: there is none
    checkpoint_bytes: int | None = None  # all tensors as stored; None: not known
    read: bool = True  # whether files were read; False: a row of the catalogue
    said_format: str | None = None  # weight format that the asked name states
    unclear: str | None = None  # word of the name that states a quantisation but not its bits

    @property
    def fields(self) -> Fields:
        """Of the language part."""
        return language(self.config)

    @property
    def own(self) -> Settings | None:
        """The checkpoint's own quantisation; None: it has none."""
        return quantisation.settings(self.config, self.hf_quant_config)


class _Chosen(Struct, frozen=True):
    """A format, and where it comes from."""

    override: WeightFormat | None  # the format; None: as the source's config states it
    how: str  # in words, for people
    assumed: bool = False  # whether nothing states it
    unstated: bool = False  # whether not even the checkpoint's row does, so that it is taken for the usual one


def resolve(
    settings: ModelSettings,
    served: ServedModel | None,
    files: ModelFiles | None,
    catalogue: Callable[[], Finder],
    notes: Sequence[str] = (),
) -> ModelFacts:
    """The facts of one model, with their origin in words.

    `files` as the loader found them; `catalogue` is only called where there are none. `notes` of the loader are handed on. Raises
    FactsError: model_unknown where no row has the name or a format is not understood, architecture_unknown where no formula holds.
    """
    served = served or ServedModel("")
    if files is not None:
        stored = files.hf_quant_config, files.checkpoint_bytes
        source = _Source(name_of(files.path), files.path, files.config, *stored)
    else:
        source = _of_catalogue(settings, served, catalogue(), notes)
    with _naming(source):
        shape = geometry(source.config)
    weights = _weights(settings, served, source, _stated(served, shape))
    plain = weights.override if weights.override is not None and formats.is_plain(weights.override) else None
    with _naming(source):
        assignment = quantisation.assign(source.config, source.hf_quant_config, shape, override=weights.override)
        dtype = plain or quantisation.dtype(source.config)
    kv, how_kv, assumed_kv = _kv(settings, served, source, dtype, shape)
    origin = [source.origin, _words(assignment, weights)]
    if shape.attention and not shape.encoder:
        origin.append(f"KV cache {kv.name} {how_kv}")
    checkpoint = source.checkpoint_bytes if _as_stored(source, weights.override) else None
    facts = ModelFacts(
        name=served.name or source.name,
        origin="; ".join(origin),
        geometry=shape,
        groups=quantisation.weigh(shape, assignment),
        kv_bytes_per_element=kv.bytes,
        kv_format=kv.name,
        state_bytes_per_element=_state_bytes(settings, served, source, dtype, shape),
        checkpoint_bytes=served.weight_bytes or checkpoint,
        estimate_sound=quantisation.estimate_sound(shape, assignment),
        weights_assumed=weights.unstated,
        formats_assumed=weights.assumed or (assumed_kv and not shape.encoder),
        context_limit_tokens=_longest_context(source),
    )
    return replace(facts, notes=(*notes, *_disagreement(facts), *_assumed_of_name(weights, kv, assumed_kv, facts)))


def _of_catalogue(settings: ModelSettings, served: ServedModel, catalogue: Finder, notes: Sequence[str]) -> _Source:
    first: FactsError | None = None
    for said in _said_names(settings, served):
        try:
            match = catalogue.find(said)
        except FactsError as error:
            first = first or error
            continue
        origin = f"{match.entry.catalogue}: {match.entry.name}"
        return _Source(
            match.entry.name, origin, match.entry.config, read=False, said_format=match.weight_format,
            unclear=match.unclear,
        )  # fmt: skip
    why = str(first) if first is not None else "the server does not say which model it serves"
    raise model_unknown("; ".join((why, *notes)), SET_MODEL)


def _said_names(settings: ModelSettings, served: ServedModel) -> list[str]:
    """The configured name alone; else what was loaded, and the served name unless a hub id says better what was."""
    if settings.name is not None:
        return [settings.name]
    if served.root and _HUB_ID.fullmatch(served.root):
        return [served.root]
    return [name for name in (served.root, served.name) if name]


def _stated(served: ServedModel, shape: Geometry) -> float | None:
    """Bits per weight by the size that the server states of what it loaded; None where it states none, or one that cannot be."""
    if not served.weight_bytes or not shape.parameters_total:
        return None
    bits = 8 * served.weight_bytes / shape.parameters_total
    return bits if _FEWEST_BITS <= bits <= _MOST_BITS else None


def _weights(settings: ModelSettings, served: ServedModel, source: _Source, stated: float | None) -> _Chosen:
    own, quantization = source.own, served.quantization
    if settings.weight_format is not None:
        return _Chosen(_or_own(formats.named(settings.weight_format), own), "as configured")
    if quantization:
        return _quantised(quantization, source, own, stated, served.said_by)
    if quantization is None and source.unclear is not None:
        raise model_unknown(
            f"the name of {source.name} says {source.unclear!r}, which does not tell how its weights are stored",
            SET_FORMAT,
        )
    if quantization is None and source.said_format is not None:
        meant = _or_own(formats.named(source.said_format), own)
        return _Chosen(meant, "as its name says", assumed=_is_quantisation(meant))
    said = _plain(served.dtype) if own is None else None
    if said is not None:
        return _Chosen(said, f"as {served.said_by} says")
    if source.read:
        return _Chosen(None, "as the file says")
    if own is not None or any(map(source.fields.find_around, ("dtype", "torch_dtype"))):
        return _Chosen(None, "as it is published", assumed=quantization is None)
    return _Chosen(None, "(its row states no format)", assumed=quantization is None, unstated=True)


def _quantised(word: str, source: _Source, own: Settings | None, stated: float | None, who: str) -> _Chosen:
    """The engine, or who starts it, names a quantisation. A checkpoint that has one of its own says more about it than the word does."""
    if own is not None:
        return _Chosen(None, "as the file says" if source.read else "as it is published")
    if stated is not None and (mix := _mix(word, stated)) is not None:
        return _Chosen(mix, f"as {who} says, its size over the parameters")
    meant = _named(word)
    said = _named(source.said_format)
    if said is not None and (meant is None or said.multiplied is meant.multiplied):
        # "gptq" and "compressed-tensors" leave the bits open, the name says them
        return _Chosen(said, "as its name says")
    if meant is not None:
        return _Chosen(meant, f"as {who} says")
    raise model_unknown(
        f"{who} says that the weights of {source.name} are {word[:64]!r}, which leaves their bits open", SET_FORMAT
    )


def _named(word: str | None) -> WeightFormat | None:
    """The format of that name; None for none."""
    try:
        return formats.named(word) if word else None
    except FactsError:
        return None


def _mix(word: str, stated: float) -> WeightFormat | None:
    """The mix of GGUF types that a word names, with the bits that its size says. None: the word names another format, or the size is not
    its."""
    meant = _named(word)
    if meant is None:  # a type newer than the table
        return WeightFormat(f"gguf_{word[:64].lower()}", stated, Precision.INT8)
    near = meant.bits / _SIZE_TOLERANCE <= stated <= meant.bits * _SIZE_TOLERANCE
    return replace(meant, bits=stated) if formats.is_gguf(meant) and near else None


def _or_own(said: WeightFormat, own: Settings | None) -> WeightFormat | None:
    """None where the checkpoint's own quantisation is of that kind, and so says it exactly."""
    return None if own is not None and own.method and said.name.startswith(own.method) else said


def _is_quantisation(meant: WeightFormat | None) -> bool:
    """Whether a format is of a quantised checkpoint, which says module by module what it holds, as no name does."""
    return meant is not None and not formats.is_plain(meant) and not formats.is_gguf(meant)


def _plain(dtype: str | None) -> WeightFormat | None:
    """The dtype that an engine names; None for "auto" and what is none."""
    found = _named(dtype)
    return found if found is not None and formats.is_plain(found) else None


def _kv(
    settings: ModelSettings, served: ServedModel, source: _Source, dtype: WeightFormat, shape: Geometry
) -> tuple[formats.KvFormat, str, bool]:
    """Format of the KV cache, where it comes from, whether it is assumed.

    Where nobody says it, what the checkpoint was calibrated for, as engines take it then; "auto" said by a server is the model's dtype,
    unless it is known to mean the checkpoint's.
    """
    head = next((group.kv_elements // (2 * group.kv_heads) for group in shape.attention if not shape.mla), None)

    def named(text: str) -> formats.KvFormat:
        return formats.kv_format(text, dtype, head_size=head or None)

    if settings.kv_cache_dtype is not None:
        return named(settings.kv_cache_dtype), "as configured", False
    said, who = served.kv_cache_dtype, served.said_by
    hint = quantisation.kv_hint(source.config, source.hf_quant_config)
    if said and hint is not None and _keeps_as_calibrated(served, said.lower(), hint, source, shape):
        return named(hint), f"as the checkpoint wants it, which {who} means by {said[:16]}", False
    if said:
        try:
            return named(said), f"as {who} says", False
        except FactsError as error:
            raise FactsError(error.reason, f"{who}'s {error.what}", SET_KV_DTYPE) from error
    if hint is not None:
        return named(hint), "as the checkpoint is calibrated", True
    return named("auto"), "as the model", True


def _keeps_as_calibrated(served: ServedModel, said: str, hint: str, source: _Source, shape: Geometry) -> bool:
    """Whether the engine takes the KV cache's format, `hint`, from such a checkpoint, whatever it goes on saying."""
    if family(source.fields) in served.kv_as_calibrated:
        return said in _WORDS_OF_FAMILIES
    method = source.own.method if source.own is not None else ""
    # only vLLM's plain attention layers ask a compressed-tensors checkpoint, those of MLA do not
    if said != "auto" or (shape.mla and method == "compressed-tensors"):
        return False
    asked = (name.partition("/") for name in served.kv_as_calibrated)
    return any(only in ("", hint) and (method == name or method.startswith(f"{name}-")) for name, _, only in asked)


def _state_bytes(
    settings: ModelSettings, served: ServedModel, source: _Source, dtype: WeightFormat, shape: Geometry
) -> float:
    """Bytes of an element of recurrent state; an engine's "auto" is what the config says, else the model's dtype (vLLM), but for layers
    that are kept in float32 then too.

    Where nobody says it, float32.
    """
    said = settings.state_dtype
    if said is not None and said.lower() != "auto":
        return formats.plain(said).bytes
    said = said or served.state_dtype
    of_config = map(source.fields.find_around, ("mamba_ssm_cache_dtype", "mamba_ssm_dtype"))
    for word in (said, *of_config):
        found = _plain(word) if isinstance(word, str) else None
        if found is not None:
            return found.bytes
    of_model = said is not None and said.lower() == "auto"
    of_model = of_model and not any(group.float32_by_default for group in shape.recurrent)
    return dtype.bytes if of_model else _STATE_BYTES


def _longest_context(source: _Source) -> int | None:
    """Tokens that the positions of the config are made for; RoPE scaling may be in them or not, so that engines can allow more."""
    fields = source.fields
    said = next((found for key in _POSITIONS if (found := fields.found(key)) is not None), None)
    if isinstance(said, bool) or not isinstance(said, int) or not 0 < said <= LARGEST:
        return None
    # RoBERTa counts positions from the padding token's index on
    taken = 2 if fields.model_type in _POSITIONS_FROM_PADDING else 0
    return said - taken if said > taken else None


def _as_stored(source: _Source, override: WeightFormat | None) -> bool:
    """Whether the weights are in GPU memory as the checkpoint stores them: not quantised or cast while they are loaded."""
    fields, own = source.fields, source.own
    stored = str(fields.find_around("dtype") or fields.find_around("torch_dtype") or "bfloat16").removeprefix("torch.")
    if override is None:
        return own is not None or stored not in ("float32", "float")
    known = _plain(stored)
    return own is None and known is not None and formats.is_plain(override) and known.bits == override.bits


def _disagreement(facts: ModelFacts) -> tuple[str, ...]:
    checkpoint = facts.checkpoint_bytes
    if checkpoint is None or abs(checkpoint - facts.weight_bytes) <= CHECKPOINT_TOLERANCE_RATIO * checkpoint:
        return ()
    sizes = (
        f"the checkpoint holds {checkpoint / 1e9:.2f} GB, its sizes and formats make {facts.weight_bytes / 1e9:.2f} GB"
    )
    left_out = facts.geometry.left_out
    if left_out and checkpoint > facts.weight_bytes:
        return (f"{sizes}: what is not counted is in it ({', '.join(left_out)})",)
    return (f"{sizes}: if the checkpoint holds nothing else, state the weight format",)


def _assumed_of_name(weights: _Chosen, kv: formats.KvFormat, assumed_kv: bool, facts: ModelFacts) -> tuple[str, ...]:
    """What nobody stated of a quantised checkpoint that is known by a name alone, which no row of a catalogue has."""
    if not (weights.assumed and _is_quantisation(weights.override)):
        return ()
    assert weights.override is not None
    cache = f", and a KV cache in another format than {kv.name}" if assumed_kv and facts.geometry.attention else ""
    return (
        f"{weights.override.name} is assumed of every linear layer but lm_head, because the name says it: the checkpoint's config.json "
        f"may keep some, such as attention, in {formats.BF16.name}{cache}; give that file",
    )


def _words(assignment: quantisation.Assignment, weights: _Chosen) -> str:
    found = dict.fromkeys(share.format.name for share in assignment.shares if share.module.matrix)
    return f"weights {'assumed ' if weights.unstated else ''}{', '.join(found)} {weights.how}"


@contextmanager
def _naming(source: _Source) -> Iterator[None]:
    """Errors inside name where the fields come from."""
    try:
        yield
    except FactsError as error:
        raise FactsError(error.reason, f"{source.origin}: {error.what}", error.fix) from error
