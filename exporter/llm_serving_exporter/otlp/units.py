"""The unit of a metric in UCUM, such that a receiver which writes units into names leaves ours as they are."""

from __future__ import annotations

from llm_serving_exporter.catalogue import PUBLISHED
from llm_serving_exporter.catalogue.spec import Unit
from llm_serving_exporter.otlp.gen_ai import GEN_AI_PREFIX, GEN_AI_UNIT

# UCUM, and how the name ends then (prometheus/otlptranslator 1.0.0, units.go): a receiver adds that where it is missing. What stands in
# braces is a note to people and is never added. A ratio is not "1", for which gauges are renamed to end in _ratio
_UCUM: dict[Unit, tuple[str, str]] = {
    Unit.SECONDS: ("s", "_seconds"),
    Unit.TIMESTAMP: ("s", "_seconds"),
    Unit.BYTES: ("By", "_bytes"),
    Unit.JOULES: ("J", "_joules"),
    Unit.GRAMS: ("g", "_grams"),
    Unit.WATTS: ("W", "_watts"),
    Unit.CELSIUS: ("Cel", "_celsius"),
    Unit.HERTZ: ("Hz", "_hertz"),
    # its default strategy looks for the word "per_second" among words that it has split, and adds a second one
    Unit.BYTES_PER_SECOND: ("{By/s}", ""),
    Unit.TOKENS_PER_SECOND: ("{token/s}", ""),
    Unit.PER_SECOND: ("{event/s}", ""),
    Unit.FLOPS_PER_SECOND: ("{flop/s}", ""),
    Unit.FLOPS_PER_BYTE: ("{flop/By}", ""),
    Unit.TOKENS: ("{token}", ""),
    Unit.RATIO: ("{ratio}", ""),
    Unit.USD: ("{USD}", ""),
}


def find_unit(name: str) -> str:
    """The unit of a metric by its name on the page; "" where it has none, or where the receiver would rename it for one.

    Those of the semantic conventions have theirs, whatever becomes of their names.
    """
    if name.startswith(GEN_AI_PREFIX):
        return GEN_AI_UNIT
    metric = PUBLISHED.get(name)
    if metric is None:
        return ""
    unit, ending = _UCUM.get(metric.unit, ("", ""))
    return unit if name.removesuffix("_total").endswith(ending) else ""
