"""llama.cpp's side endpoints: /props and /v1/models -> facts at start, /slots -> samples while requests run.

Each field may be missing: they moved between builds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from llm_serving_exporter.model.facts import ServerFacts
from llm_serving_exporter.model.text import clean
from llm_serving_exporter.normalise.mapping import Endpoint, Poll, Readings
from llm_serving_exporter.normalise.polled import reading

MAX_MODELS = 256  # a router lists every file of its folder
MAX_SLOTS = 4096
MAX_PATH = 4096
MOST_TOKENS = 10**12

CAPACITY, USED, DECODED, CONTEXT = "slots:n_ctx", "slots:tokens_busy", "slots:n_decoded_busy", "slots:tokens_decoding"

_PLAIN = {"all f32": "float32", "f32": "float32", "f16": "float16", "bf16": "bfloat16"}
# llama_model_ftype_name writes "Q4_K - Medium", "IQ2_XS - 2.3125 bpw", "MXFP4 MoE", each perhaps with "(guessed)"
_SIZES = {"small": "_s", "medium": "_m", "large": "_l"}
_FTYPE = re.compile(r"([a-z0-9_]+)(?: - (small|medium|large)\b)?")


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _count(value: object) -> float | None:
    """A number of tokens; 0 is one."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < MOST_TOKENS:
        return None
    return float(value)


def _name(value: object) -> str | None:
    return clean(value) if isinstance(value, str) and value else None


def _file_name(path: str) -> str:
    return clean(path.replace("\\", "/").rsplit("/", 1)[-1])


def read_props(answer: object, facts: ServerFacts) -> ServerFacts:
    """`/props`: build, slots, context of a slot, and the model by alias and path."""
    if not isinstance(answer, dict):
        return facts
    defaults = answer.get("default_generation_settings")
    context = _whole(defaults.get("n_ctx")) if isinstance(defaults, dict) else None
    build, path = answer.get("build_info"), answer.get("model_path")
    root = clean(path, MAX_PATH) if isinstance(path, str) and path else None
    name = _name(answer.get("model_alias")) or (_file_name(root) if root else None)
    found = replace(
        facts,
        version=clean(build, 64) if isinstance(build, str) and build else facts.version,
        batch_limit_requests=_whole(answer.get("total_slots")) or facts.batch_limit_requests,
        model_names=(name,) if name else facts.model_names,
        model_roots={name: root} if name and root else facts.model_roots,
        context_limit_tokens={name or "": context} if context else facts.context_limit_tokens,
    )
    return _stored_as(answer.get("model_ftype"), found)


def read_models(answer: object, facts: ServerFacts) -> ServerFacts:
    """`/v1/models`: the size of the weights and their format; the name where /props has none. A router lists every model it may load."""
    listed = answer.get("data") if isinstance(answer, dict) else None
    entries = [entry for entry in (listed if isinstance(listed, list) else [])[:MAX_MODELS] if isinstance(entry, dict)]
    one = entries[0] if len(entries) == 1 else next((e for e in entries if _is_called(e, facts.model_names)), None)
    if one is None:
        return facts
    found, name = facts, _name(one.get("id"))
    if name and name not in facts.model_names:
        # what the API calls the model; /props may know only its file
        roots, contexts = set(facts.model_roots.values()), set(facts.context_limit_tokens.values())
        found = replace(
            found,
            model_names=(name,),
            model_roots={name: roots.pop()} if len(roots) == 1 else facts.model_roots,
            context_limit_tokens={name: contexts.pop()} if len(contexts) == 1 else facts.context_limit_tokens,
        )
    meta = one.get("meta")
    if not isinstance(meta, dict):
        return found
    return _stored_as(meta.get("ftype"), replace(found, weight_bytes=_whole(meta.get("size")) or found.weight_bytes))


def _is_called(entry: dict[object, object], names: tuple[str, ...]) -> bool:
    aliases = entry.get("aliases")
    called = {_name(entry.get("id")), *(_name(alias) for alias in (aliases if isinstance(aliases, list) else [])[:64])}
    return any(name in called for name in names)


def _stored_as(ftype: object, facts: ServerFacts) -> ServerFacts:
    """The file's type: a dtype, or a mix of GGUF types under the name that llama-quantize gives it."""
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
    slots = [slot for slot in (answer if isinstance(answer, list) else [])[:MAX_SLOTS] if isinstance(slot, dict)]
    if not slots:
        return ()
    if not all(isinstance(slot.get("is_processing"), bool) for slot in slots):
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


def _decoded(slot: dict[str, object]) -> float | None:
    """Tokens generated so far: next_token[0].n_decoded, or next_token.n_decoded."""
    following = slot.get("next_token")
    if isinstance(following, list):
        following = following[0] if following else None
    return _count(following.get("n_decoded")) if isinstance(following, dict) else None


def _sum(values: Iterable[float | None]) -> float | None:
    found = list(values)
    return None if None in found else float(sum(value for value in found if value is not None))


ENDPOINTS = (
    Endpoint("/props", read_props, "batch_limit_requests"),
    Endpoint("/v1/models", read_models, "model_name"),
)
# a sleeping server loads its model to answer /slots, and each answer puts its sleep off (llama.cpp PR 27376): asked only while one works
POLLS = (
    Poll("/slots", read_slots, "kv_cache_usage_ratio", busy="llamacpp:requests_processing", at_rest=slots_at_rest),
)
