"""`GET /info` of Hugging Face's servers, TGI and TEI: JSON -> facts. Read at start and when the server restarts, never each tick."""

from __future__ import annotations

from collections.abc import Mapping

from llm_serving_exporter.model.facts import ServerFacts
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.normalise.json_values import mapping, text, whole
from llm_serving_exporter.normalise.mapping import Endpoint

MAX_PATH = 4096


def _dtype(value: object) -> str | None:
    # TGI up to 2.2 wrote torch's own name ("torch.float16"), TEI writes "float16"
    word = text(value, 64)
    return word.removeprefix("torch.") if word else None


def _common(said: Mapping[str, object], facts: ServerFacts, name: str | None, context: int | None) -> ServerFacts:
    loaded = text(said.get("model_id"), MAX_PATH)
    return replace(
        facts,
        version=text(said.get("version"), 64) or facts.version,
        model_names=(name,) if name else facts.model_names,
        model_roots={**facts.model_roots, **({name: loaded} if name and loaded else {})},
        context_limit_tokens={name: context} if name and context else facts.context_limit_tokens,
        dtype=_dtype(said.get("model_dtype")) or facts.dtype,
    )


def read_tgi_info(answer: object, facts: ServerFacts) -> ServerFacts:
    """TGI's: model_id, version, max_total_tokens; model_dtype and max_batch_size (null unless set) only before 2.3.

    max_concurrent_requests is how many may be in the server, waiting ones included: no limit of the batch.
    """
    said = mapping(answer)
    name = text(said.get("model_id"), 128)
    found = _common(said, facts, name, whole(said.get("max_total_tokens")))
    return replace(found, batch_limit_requests=whole(said.get("max_batch_size")) or facts.batch_limit_requests)


def read_tei_info(answer: object, facts: ServerFacts) -> ServerFacts:
    """TEI's: served_model_name, model_id, model_dtype, version, max_input_length, max_batch_tokens, max_batch_requests (null unless set)."""
    said = mapping(answer)
    name = text(said.get("served_model_name"), 128) or text(said.get("model_id"), 128)
    found = _common(said, facts, name, whole(said.get("max_input_length")))
    return replace(
        found,
        batch_limit_requests=whole(said.get("max_batch_requests")) or facts.batch_limit_requests,
        batched_tokens_limit=whole(said.get("max_batch_tokens")) or facts.batched_tokens_limit,
    )


def is_tgi(answer: object) -> bool:
    """Whether `/info` is TGI's: a model and the limits of a text generator (all versions)."""
    said = mapping(answer)
    return "model_id" in said and "max_best_of" in said and "max_stop_sequences" in said


def is_tei(answer: object) -> bool:
    """Whether `/info` is TEI's: a model and the limits of an embedder (all versions)."""
    said = mapping(answer)
    return "model_id" in said and "max_batch_tokens" in said and "tokenization_workers" in said


_SAYS = ("version", "context_limit_tokens", "batch_limit_requests", "model_names", "model_roots", "dtype")

TGI_SHOWS = (("/info", is_tgi),)
TEI_SHOWS = (("/info", is_tei),)
TGI_ENDPOINTS = (Endpoint("/info", read_tgi_info, _SAYS),)
TEI_ENDPOINTS = (Endpoint("/info", read_tei_info, (*_SAYS, "batched_tokens_limit")),)
