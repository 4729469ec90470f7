"""Who evaluates the rules, and what each may be given: a row each. What is rendered fires equally on all of them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ruler:
    """What a program that evaluates rules takes beyond what all of them take."""

    name: str  # of the option --dialect
    about: str  # programs and versions, for --help and docs/rules.md
    # the group's key by which queries look at a moment that has passed; None = selectors get an offset each
    delay_key: str | None = None
    # whether a range leaves out the moment that it begins with, on every version that is meant
    ranges_are_left_open: bool = False


# accepted by promtool 2.42 and 3.15 and by vmalert 1.79, and tested on all three
PORTABLE = Ruler("portable", "Prometheus 2.42 and newer, its operator, Mimir, Thanos Ruler, vmalert 1.79 and newer")
RULERS = (
    PORTABLE,
    Ruler("prometheus-3", "Prometheus 3, and its operator with that", "query_offset", ranges_are_left_open=True),
    # it took the key from Prometheus in June 2024 (grafana/mimir#8295); its engine became Prometheus 3's later on
    Ruler("mimir", "Mimir 2.14 and newer", "query_offset"),
    # its rule files have a reader of their own, and a query may go to Prometheus of any version
    Ruler("thanos", "Thanos Ruler"),
    # it refuses groups with keys that came later, eval_delay among them
    Ruler("vmalert-1.79", "vmalert 1.79 and newer with VictoriaMetrics"),
)
BY_NAME = {ruler.name: ruler for ruler in RULERS}
