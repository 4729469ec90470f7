"""`GET /info` of Hugging Face's servers, TGI and TEI: JSON -> facts. Read at start and when the server restarts, never each tick."""

from __future__ import annotations

from dataclasses import replace

from llm_serving_exporter.model.facts import ServerFacts
from llm_serving_exporter.model.text import clean
from llm_serving_exporter.normalise.mapping import Endpoint

MAX_PATH = 4096
LARGEST = 2**53  # above it a float does not hold every whole number


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= LARGEST else None


def _text(value: object, length: int = 64) -> str | None:
    return clean(value, length) if isinstance(value, str) and value else None


def _dtype(value: object) -> str | None:
    # TGI up to 2.2 wrote torch's own name ("torch.float16"), TEI writes "float16"
    text = _text(value)
    return text.removeprefix("torch.") if text else None


def _common(answer: dict[str, object], facts: ServerFacts, name: str | None, context: int | None) -> ServerFacts:
    loaded = _text(answer.get("model_id"), MAX_PATH)
    return replace(
        facts,
        version=_text(answer.get("version")) or facts.version,
        model_names=(name,) if name else facts.model_names,
        model_roots={**facts.model_roots, **({name: loaded} if name and loaded else {})},
        context_limit_tokens={name: context} if name and context else facts.context_limit_tokens,
        dtype=_dtype(answer.get("model_dtype")) or facts.dtype,
    )


def read_tgi_info(answer: object, facts: ServerFacts) -> ServerFacts:
    """TGI's: model_id, version, max_total_tokens; model_dtype and max_batch_size (null unless set) only before 2.3.

    max_concurrent_requests is how many may be in the server, waiting ones included: no limit of the batch.
    """
    if not isinstance(answer, dict):
        return facts
    name = _text(answer.get("model_id"), 128)
    found = _common(answer, facts, name, _whole(answer.get("max_total_tokens")))
    return replace(found, batch_limit_requests=_whole(answer.get("max_batch_size")) or facts.batch_limit_requests)


def read_tei_info(answer: object, facts: ServerFacts) -> ServerFacts:
    """TEI's: served_model_name, model_id, model_dtype, version, max_input_length, max_batch_tokens, max_batch_requests (null unless set)."""
    if not isinstance(answer, dict):
        return facts
    name = _text(answer.get("served_model_name"), 128) or _text(answer.get("model_id"), 128)
    found = _common(answer, facts, name, _whole(answer.get("max_input_length")))
    return replace(
        found,
        batch_limit_requests=_whole(answer.get("max_batch_requests")) or facts.batch_limit_requests,
        batched_tokens_limit=_whole(answer.get("max_batch_tokens")) or facts.batched_tokens_limit,
    )


TGI_ENDPOINTS = (Endpoint("/info", read_tgi_info, "context_limit_tokens"),)
TEI_ENDPOINTS = (Endpoint("/info", read_tei_info, "context_limit_tokens"),)
