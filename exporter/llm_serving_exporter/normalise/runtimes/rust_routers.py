"""What vLLM's router in Rust and SGLang's older one share: the one began as a copy of the other, and only the prefix of its names differs."""

from __future__ import annotations

from llm_serving_exporter.model.target import Role
from llm_serving_exporter.normalise.mapping import ERRORS, Fingerprint, Mark, Row, Runtime
from llm_serving_exporter.normalise.runtimes.front_doors import explain_missing

_NO_TIME = "a stream's duration ends with its headers, before the first token"


def make_router(
    name: str,
    title: str,
    prefix: str,
    *,
    source: str,
    caveat: str,
    versions: str,
    covered: str = "",
    also_ignored: str = "",
) -> Runtime:
    """The table of a router whose samples begin with `prefix`. `also_ignored`: names of another prefix of its page, with a star; "": none."""
    answered = f"{prefix}generate_duration_seconds_count"
    row = Row(
        "requests_finished_total",
        (answered,),
        named={answered: "answered"},
        by="outcome",
        source=source,
        caveat=caveat,
    )
    missing = {
        ERRORS: "how a request ended is not counted",
        "time_to_first_token_seconds": _NO_TIME,
        "e2e_request_latency_seconds": _NO_TIME,
    }
    return Runtime(
        name=name,
        title=title,
        born_at_first_event=True,
        prefixes=(prefix,),
        fingerprints=(Fingerprint((Mark(f"{prefix}*"),)),),
        rows=(row,),
        model_labels=("model",),
        ignored=(f"{prefix}*", also_ignored) if also_ignored else (f"{prefix}*",),
        role=Role.FRONTEND,
        missing=explain_missing({row.field}, missing),
        versions=versions,
        covered=covered,
    )
