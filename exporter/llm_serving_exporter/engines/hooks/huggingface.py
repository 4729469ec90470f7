"""`GET /info` of Hugging Face's TGI and TEI: JSON -> facts. Read at start and when the server restarts, never each tick."""

from __future__ import annotations

from collections.abc import Mapping

from llm_serving_exporter.engines.json_answers import LONGEST_PATH, add_facts, mapping, text, whole
from llm_serving_exporter.engines.mapping import Endpoint, Hooks
from llm_serving_exporter.model.snapshot import ServerFacts


def _read_info(info: Mapping[str, object], facts: ServerFacts, name: str | None, context: int | None) -> ServerFacts:
    """What both servers' answers have."""
    root, dtype = text(info.get("model_id"), LONGEST_PATH), text(info.get("model_dtype"), 64)
    return add_facts(
        facts,
        version=text(info.get("version"), 64),
        model_names=(name,) if name else None,
        model_roots={**facts.model_roots, **({name: root} if name and root else {})},
        context_limit_tokens={name: context} if name and context else None,
        # TGI up to 2.2 wrote torch's own name ("torch.float16"), TEI writes "float16"
        dtype=dtype.removeprefix("torch.") or None if dtype else None,
    )


def read_tgi_info(answer: object, facts: ServerFacts) -> ServerFacts:
    """TGI's: model_id, version, max_total_tokens; model_dtype and max_batch_size (null unless set) only before 2.3.

    max_concurrent_requests is how many may be in the server, waiting ones included: no limit of the batch.
    """
    info = mapping(answer)
    facts = _read_info(info, facts, text(info.get("model_id"), 128), whole(info.get("max_total_tokens")))
    return add_facts(facts, batch_limit_requests=whole(info.get("max_batch_size")))


def read_tei_info(answer: object, facts: ServerFacts) -> ServerFacts:
    """TEI's: served_model_name, model_id, model_dtype, version, max_input_length, max_batch_tokens,
    max_batch_requests (null unless set).
    """
    info = mapping(answer)
    name = text(info.get("served_model_name"), 128) or text(info.get("model_id"), 128)
    return add_facts(
        _read_info(info, facts, name, whole(info.get("max_input_length"))),
        batch_limit_requests=whole(info.get("max_batch_requests")),
        batched_tokens_limit=whole(info.get("max_batch_tokens")),
    )


def is_tgi(answer: object) -> bool:
    """Whether `/info` is TGI's: a model and the limits of a text generator (all versions)."""
    return {"model_id", "max_best_of", "max_stop_sequences"} <= mapping(answer).keys()


def is_tei(answer: object) -> bool:
    """Whether `/info` is TEI's: a model and the limits of an embedder (all versions)."""
    return {"model_id", "max_batch_tokens", "tokenization_workers"} <= mapping(answer).keys()


_SAYS = ("version", "context_limit_tokens", "batch_limit_requests", "model_names", "model_roots", "dtype")

TGI = Hooks(endpoints=(Endpoint("/info", read_tgi_info, _SAYS),), shows=(("/info", is_tgi),))
TEI = Hooks(endpoints=(Endpoint("/info", read_tei_info, (*_SAYS, "batched_tokens_limit")),), shows=(("/info", is_tei),))
