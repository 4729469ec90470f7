"""llama.cpp: /props and /v1/models -> facts at start, /slots -> samples while requests run. Each field may be missing: they moved between
builds. And Ollama, which runs it: its list of loaded models, which is its page, and its version.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from llm_serving_exporter.engines.json_answers import (
    LONGEST_PATH,
    add_facts,
    list_models,
    list_objects,
    listed,
    mapping,
    number,
    read_version,
    reading,
    text,
    whole,
)
from llm_serving_exporter.engines.mapping import Endpoint, Hooks, Poll, Readings
from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.snapshot import ServerFacts
from llm_serving_exporter.model.text import clean

MAX_ALIASES = 64
MAX_SLOTS = 4096
MOST_TOKENS = 10**12

CAPACITY, USED, DECODED, CONTEXT = "slots:n_ctx", "slots:tokens_busy", "slots:n_decoded_busy", "slots:tokens_decoding"

_PLAIN = {"all f32": "float32", "f32": "float32", "f16": "float16", "bf16": "bfloat16"}
# llama_model_ftype_name writes "Q4_K - Medium", "IQ2_XS - 2.3125 bpw", "MXFP4 MoE", each perhaps with "(guessed)"
_SIZES = {"small": "_s", "medium": "_m", "large": "_l"}
_FTYPE = re.compile(r"([a-z0-9_]+)(?: - (small|medium|large)\b)?")


def _count(value: object) -> float | None:
    """A number of tokens; 0 is one."""
    tokens = number(value)
    return tokens if tokens is not None and 0 <= tokens < MOST_TOKENS else None


def read_props(answer: object, facts: ServerFacts) -> ServerFacts:
    """`/props`: build, slots, context of a slot, and the model by alias and path."""
    props = mapping(answer)
    context = whole(mapping(props.get("default_generation_settings")).get("n_ctx"))
    root = text(props.get("model_path"), LONGEST_PATH)
    name = text(props.get("model_alias")) or (clean(re.split(r"[/\\]", root)[-1]) if root else None)
    facts = add_facts(
        facts,
        version=text(props.get("build_info"), 64),
        batch_limit_requests=whole(props.get("total_slots")),
        model_names=(name,) if name else None,
        model_roots={name: root} if name and root else None,
        context_limit_tokens={name or "": context} if context else None,
    )
    return _add_format(props.get("model_ftype"), facts)


def read_models(answer: object, facts: ServerFacts) -> ServerFacts:
    """`/v1/models`: the size of the weights and their format; the name where /props has none. A router lists every model it may load."""
    entries = list_models(answer)
    model = entries[0] if len(entries) == 1 else next((e for e in entries if _is_called(e, facts.model_names)), None)
    if model is None:
        return facts
    name, meta = text(model.get("id")), mapping(model.get("meta"))
    if name and name not in facts.model_names:
        # what the API calls the model; /props may know only its file
        roots, contexts = set(facts.model_roots.values()), set(facts.context_limit_tokens.values())
        facts = add_facts(
            facts,
            model_names=(name,),
            model_roots={name: roots.pop()} if len(roots) == 1 else None,
            context_limit_tokens={name: contexts.pop()} if len(contexts) == 1 else None,
        )
    return _add_format(meta.get("ftype"), add_facts(facts, weight_bytes=whole(meta.get("size"))))


def _is_called(entry: Mapping[str, object], names: tuple[str, ...]) -> bool:
    called = {text(entry.get("id")), *(text(alias) for alias in listed(entry.get("aliases"), MAX_ALIASES))}
    return any(name in called for name in names)


def _add_format(ftype: object, facts: ServerFacts) -> ServerFacts:
    """With the file's type: a dtype, or a mix of GGUF types under the name that llama-quantize gives it."""
    if not isinstance(ftype, str) or facts.quantization is not None:
        return facts
    word = ftype.lower().replace("(guessed)", "").strip()
    if word in _PLAIN:
        return replace(facts, dtype=_PLAIN[word], quantization="")
    match = _FTYPE.match(word)
    if match is None or word.startswith("unknown"):
        return facts
    return replace(facts, quantization=clean(match[1] + _SIZES.get(match[2] or "", ""), 64))


def read_slots(answer: object) -> Readings:
    """`/slots`: context of all slots, and tokens of those at work. A sample whose field a slot lacks is left out."""
    slots = list_objects(answer, MAX_SLOTS)
    if not slots or not all(isinstance(slot.get("is_processing"), bool) for slot in slots):
        return ()
    busy = [slot for slot in slots if slot["is_processing"]]
    tokens = [_count(slot.get("n_prompt_tokens")) for slot in busy]
    decoded = [_decoded(slot) for slot in busy]
    decoding = [size for size, done in zip(tokens, decoded, strict=True) if done != 0]
    sums = {
        CAPACITY: _sum([_count(slot.get("n_ctx")) for slot in slots]),
        USED: _sum(tokens),
        DECODED: _sum(decoded),
        CONTEXT: None if None in decoded else _sum(decoding),
    }
    return tuple(reading(name, value) for name, value in sums.items() if value is not None)


def slots_at_rest(last: Readings) -> Readings:
    """No slot works; what /slots said last tells the context, and which samples this build has."""
    if not last:
        return reading(USED, 0.0), reading(DECODED, 0.0), reading(CONTEXT, 0.0)
    return tuple((key, value if key.name == CAPACITY else 0.0) for key, value in last)


def _decoded(slot: Mapping[str, object]) -> float | None:
    """Tokens generated so far: next_token[0].n_decoded, or next_token.n_decoded."""
    following = slot.get("next_token")
    if isinstance(following, list):
        following = following[0] if following else None
    return _count(mapping(following).get("n_decoded"))


def _sum(values: Sequence[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return float(add_up(numbers)) if len(numbers) == len(values) else None


_PROPS = (
    "version", "batch_limit_requests", "context_limit_tokens", "model_names", "model_roots", "dtype", "quantization",
)  # fmt: skip

LLAMACPP = Hooks(
    endpoints=(
        Endpoint("/props", read_props, _PROPS),
        Endpoint("/v1/models", read_models, ("model_names", "weight_bytes", "dtype", "quantization")),
    ),
    # a sleeping server loads its model to answer /slots, and each answer puts its sleep off (llama.cpp PR 27376)
    polls=(
        Poll("/slots", read_slots, "kv_cache_usage_ratio", busy="llamacpp:requests_processing", at_rest=slots_at_rest),
    ),
)


# --- Ollama. Facts: server/routes.go and api/types.go of v0.33.0-rc2 ---

MAX_LOADED = 64
# field of an entry -> sample
_OLLAMA_SAMPLES = {"size_vram": "ollama:size_vram", "context_length": "ollama:context_length"}


def _list_loaded(answer: object) -> dict[str, Mapping[str, object]] | None:
    """Entries by model name; None where the JSON is not a list of loaded models."""
    models = mapping(answer).get("models")
    if not isinstance(models, list):
        return None
    entries = map(mapping, listed(models, MAX_LOADED))
    named = ((text(entry.get("name")) or text(entry.get("model")), entry) for entry in entries)
    return {name: entry for name, entry in named if name is not None}


def read_ollama_page(answer: object) -> Readings | None:
    """`/api/ps` -> samples, `ollama:loaded_models` always; None where it is not Ollama's."""
    loaded = _list_loaded(answer)
    if loaded is None:
        return None
    samples = [reading("ollama:loaded_models", float(len(loaded)))]
    for name, entry in loaded.items():
        for field, sample in _OLLAMA_SAMPLES.items():
            value = number(entry.get(field))
            if value is not None and value >= 0:
                samples.append(reading(sample, value, model_name=name))
    return tuple(samples)


def read_ollama_models(answer: object, facts: ServerFacts) -> ServerFacts:
    """`/api/ps`: the quantisation where every loaded model has the same. No names: those are on the page, and with nothing loaded there
    are none."""
    loaded = _list_loaded(answer)
    if loaded is None:
        return facts
    levels = {text(mapping(entry.get("details")).get("quantization_level"), 64) for entry in loaded.values()}
    return replace(facts, quantization=levels.pop() if len(levels) == 1 else None)


OLLAMA = Hooks(
    read_page=read_ollama_page,
    without_metrics=True,
    endpoints=(
        Endpoint("/api/version", read_version, ("version",)),
        Endpoint("/api/ps", read_ollama_models, ("quantization",)),
    ),
)
