"""`GET /info` of Hugging Face's TEI: JSON -> facts. Read at start and when the server restarts, never each tick."""

from __future__ import annotations

from llm_serving_exporter.engines.hooks.tgi import SAYS, read_common
from llm_serving_exporter.engines.json_answers import mapping, text, whole
from llm_serving_exporter.engines.mapping import Endpoint, Hooks
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.snapshot import ServerFacts


def read_tei_info(answer: object, facts: ServerFacts) -> ServerFacts:
    """TEI's: served_model_name, model_id, model_dtype, version, max_input_length, max_batch_tokens,
    max_batch_requests (null unless set).
    """
    said = mapping(answer)
    name = text(said.get("served_model_name"), 128) or text(said.get("model_id"), 128)
    found = read_common(said, facts, name, whole(said.get("max_input_length")))
    return replace(
        found,
        batch_limit_requests=whole(said.get("max_batch_requests")) or facts.batch_limit_requests,
        batched_tokens_limit=whole(said.get("max_batch_tokens")) or facts.batched_tokens_limit,
    )


def is_tei(answer: object) -> bool:
    """Whether `/info` is TEI's: a model and the limits of an embedder (all versions)."""
    said = mapping(answer)
    return "model_id" in said and "max_batch_tokens" in said and "tokenization_workers" in said


HOOKS = Hooks(
    endpoints=(Endpoint("/info", read_tei_info, (*SAYS, "batched_tokens_limit")),), shows=(("/info", is_tei),)
)
