"""The rows of OpenTelemetry's names for generative AI, as its exporters write them for Prometheus: with the unit and without it.

Facts: semantic-conventions, gen-ai/gen-ai-metrics.md, where the names have stood in development since 1.27.
"""

from __future__ import annotations

from llm_serving_exporter.model.snapshot import Quality
from llm_serving_exporter.normalise.mapping import Reads, Row

CONVENTIONS = "https://github.com/open-telemetry/semantic-conventions/blob/v1.41.0/docs/gen-ai/gen-ai-metrics.md"
DURATION = "gen_ai_server_request_duration"
# {token} is left out of the name, a unit that is written "token" is not
_TOKENS = ("gen_ai_client_token_usage", "gen_ai_client_token_usage_token", "gen_ai_client_token_usage_tokens")
_AS_ANSWERED = "From the answer's usage, where it has one."


def name_with_unit(name: str) -> tuple[str, str]:
    """A duration's name with the unit, which exporters add unless they are told not to, and without it."""
    return f"{name}_seconds", name


def make_token_rows(source: str) -> tuple[Row, ...]:
    """Tokens as sent, from a cache, and generated; and how many a request had."""
    rows = []
    for field, kind in (
        ("prompt_tokens_total", "input"),
        ("cached_prompt_tokens_total", "cached_input"),
        ("decode_tokens_total", "output"),
    ):
        rows += [
            Row(
                field,
                (f'{name}_sum{{gen_ai_token_type="{kind}"}}',),
                quality=Quality.LAGGING,
                source=source,
                caveat=_AS_ANSWERED,
            )
            for name in _TOKENS
        ]
    for field, kind in (("request_prompt_tokens", "input"), ("request_generation_tokens", "output")):
        rows += [
            Row(
                field,
                (name,),
                where={"gen_ai_token_type": frozenset({kind})},
                reads=Reads.HISTOGRAM,
                quality=Quality.LAGGING,
                source=source,
                caveat=_AS_ANSWERED,
            )
            for name in _TOKENS
        ]
    return tuple(rows)


def make_finished_rows(name: str, source: str) -> tuple[Row, ...]:
    """Requests by how they ended, of the histogram of their duration: without an error's type they ended well."""
    return tuple(
        Row(
            "requests_finished_total",
            (f"{spelling}_count",),
            by="error_type",
            # what else the label says keeps its name
            rename={"_OTHER": "failed", "": "success"},
            source=source,
            caveat="A mistake of the client's is not told from a failure: neither good nor bad.",
        )
        for spelling in name_with_unit(name)
    )


def make_histogram_rows(
    field: str, name: str, source: str, caveat: str, quality: Quality = Quality.LIVE
) -> tuple[Row, ...]:
    """One latency under both of its names."""
    return tuple(
        Row(field, (spelling,), reads=Reads.HISTOGRAM, quality=quality, source=source, caveat=caveat)
        for spelling in name_with_unit(name)
    )
