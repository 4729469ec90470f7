"""Engines that stand still while requests wait for them: what LLMServingStalled fires on, and what `outlier_blocks` leaves out."""

from __future__ import annotations

from llm_serving_alerts.promql import ENGINE, MINUTE, Dialect, clauses, series
from llm_serving_alerts.records.traffic import IN_FLIGHT
from llm_serving_alerts.rules import MINUTELY_SECONDS, Group, Record
from llm_serving_alerts.settings import Settings
from llm_serving_exporter.catalogue.health import ASKED_WHETHER_LIVE
from llm_serving_exporter.catalogue.standstill import GIVEN_UP_FROM, LONGER, MOVES, SAYS_WHAT_IS_DONE, SAYS_WHAT_RUNS

STALLED = "engine:llm_serving_stalled_requests:max"
_MOVES = {name: ",".join(f'reason!="{reason}"' for reason in reasons) for name, reasons in MOVES.items()}


def stalled(dialect: Dialect, settings: Settings) -> Group:
    """Once a minute: the alert does not wait for it."""
    expr = find_stalled(dialect, settings.alerts["Stalled"]["range"])
    records = (Record(STALLED, expr, "requests at each engine that stands still"),)
    return Group("llm-serving.stalled", records, MINUTELY_SECONDS / dialect.time_scale)


def find_stalled(dialect: Dialect, span: float) -> str:
    """PromQL: requests at each engine that has stood still for so many seconds."""
    by_engine, of_target = dialect.key(*ENGINE), dialect.key("target")
    longer = LONGER * span
    least, moments = (dialect.apply_over_time(f"{how}_over_time", IN_FLIGHT, span, MINUTE) for how in ("min", "count"))
    most = dialect.apply_over_time("max_over_time", IN_FLIGHT, longer, MINUTE)
    # whoever waits in front of engines is given up by their clients, too
    aborted = series("requests_finished_total", 'role!="frontend"', reason="abort")
    gave_up = dialect.bare(dialect.increase(aborted, longer), *ENGINE)
    # what a gauge says that is written only while there is work is no request that waits
    runs = f"and on ({of_target}) {dialect.bare(_live(SAYS_WHAT_RUNS), 'target')}"
    held_for_long = clauses(
        ("requests were there for half of a longer time, since clients give up and others come", most),
        ("of which each moment counts", f"and on ({by_engine}) {dialect.half(f'({IN_FLIGHT} > bool 0)', span)}"),
        ("and it says at once what runs", runs),
    )
    come_and_go = clauses(
        ("they come and go", f"({held_for_long})"),
        ("or nobody is let in, and clients give up", f"or on ({by_engine}) round({gave_up}) >= {GIVEN_UP_FROM}"),
    )
    stuck = (
        clauses(
            ("requests were there all the time", f"{least} > 0"),
            # after a restart it has not stood still all along
            ("and the engine was, too", f"and on ({by_engine}) {moments} >= {max(1, int(span / MINUTE))}"),
            ("and nothing has moved", f"and on ({by_engine}) {_moved(dialect, span)} == 0"),
            ("and it says at once what runs", runs),
        ),
        clauses(
            ("or for longer, in other ways", f"({come_and_go})"),
            ("and nothing has moved in that time", f"and on ({by_engine}) {_moved(dialect, longer)} == 0"),
        ),
    )
    flows = dialect.bare(" or ".join(_live(name) for name in SAYS_WHAT_IS_DONE), "target")
    either = f" or on ({by_engine}) ".join(f"({one})" for one in stuck)
    return clauses(
        ("an engine stands still", f"({dialect.one(either, *ENGINE)})"),
        ("that counts its tokens or its steps as they are made", f"and on ({of_target}) {flows}"),
        ("and answers as if it were ready", f"and on ({of_target}) {series('target_state', state='ready')} == 1"),
    )


def _moved(dialect: Dialect, span: float) -> str:
    by_engine = dialect.key(*ENGINE)
    each = " or ".join(
        f'label_replace(sum by ({by_engine}) ({dialect.increase(series(name, matchers), span)}), "of", "{name}", "", "")'
        for name, matchers in _MOVES.items()
    )
    return f"sum by ({by_engine}) ({each})"


def _live(signal: str) -> str:
    if signal not in ASKED_WHETHER_LIVE:
        raise ValueError(f"{signal} is not in ASKED_WHETHER_LIVE: the exporter does not say whether it is live")
    return f"{series('signal_quality', signal=signal, quality='live')} == 1"
