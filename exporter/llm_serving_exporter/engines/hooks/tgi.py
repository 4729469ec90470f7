"""`GET /info` of Hugging Face's TGI, and what TEI's has too: JSON -> facts. Read at start and when the server restarts, never each tick."""

from __future__ import annotations

from collections.abc import Mapping

from llm_serving_exporter.engines.json_answers import mapping, text, whole
from llm_serving_exporter.engines.mapping import Endpoint, Hooks
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.snapshot import ServerFacts

MAX_PATH = 4096


def _dtype(value: object) -> str | None:
    # TGI up to 2.2 wrote torch's own name ("torch.float16"), TEI writes "float16"
    word = text(value, 64)
    return word.removeprefix("torch.") if word else None


def read_common(said: Mapping[str, object], facts: ServerFacts, name: str | None, context: int | None) -> ServerFacts:
    """What both servers' answers have."""
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
    found = read_common(said, facts, name, whole(said.get("max_total_tokens")))
    return replace(found, batch_limit_requests=whole(said.get("max_batch_size")) or facts.batch_limit_requests)


def is_tgi(answer: object) -> bool:
    """Whether `/info` is TGI's: a model and the limits of a text generator (all versions)."""
    said = mapping(answer)
    return "model_id" in said and "max_best_of" in said and "max_stop_sequences" in said


SAYS = ("version", "context_limit_tokens", "batch_limit_requests", "model_names", "model_roots", "dtype")
HOOKS = Hooks(endpoints=(Endpoint("/info", read_tgi_info, SAYS),), shows=(("/info", is_tgi),))
