"""Who is told what of each situation, as a table: `python -m tests.e2e.notifications [NAME …] [--slow]`."""

import argparse
import tempfile
from collections.abc import Iterable
from pathlib import Path

from tests.e2e.situations import losses, rollouts, sick
from tests.e2e.situations.judge import ASPECTS
from tests.e2e.situations.play import CLUSTER, PAGER, TICKETS, Told, alert_name, play
from tests.e2e.situations.situation import by_name
from tests.support.alertmanager_groups import AlertKey, Sent

SITUATIONS = by_name((*rollouts.SITUATIONS, *losses.SITUATIONS, *sick.SITUATIONS))
HEAD = (
    "| situation | first page | first ticket | pages | tickets | messages | "
    "what fired, from and to (minutes after the cause) | not as expected |\n"
    "|---|---|---|---:|---:|---:|---|---|"
)
# on every alert, or of no help to find the sick part
_USUAL = {"alertname", "severity", "check", CLUSTER, "model_name", "role"}


def write_table(found: Iterable[Told]) -> str:
    """Markdown: a row a situation. Times are minutes after the cause (after the beginning, where nothing is wrong)."""
    return "\n".join([HEAD, *map(_row, found)]) + "\n"


def minutes_after(told: Told, at: float) -> str:
    """Minutes after the cause."""
    return f"{(at - (told.situation.cause_seconds or 0.0)) / 60:.0f} min"


def _row(told: Told) -> str:
    messages = sum(one.receiver in (PAGER, TICKETS) for one in told.sent)
    cells = [
        f"`{told.situation.name}`",
        _first(told, PAGER),
        _first(told, TICKETS),
        str(len(told.opened(PAGER))),
        str(len(told.opened(TICKETS))),
        str(messages),
        "; ".join(_lasted(told)) or "nothing",
        "; ".join(f"{aspect}: {wrong}" for aspect, judge in ASPECTS.items() if (wrong := judge(told))) or "–",
    ]
    return f"| {' | '.join(cells)} |"


def _first(told: Told, receiver: str) -> str:
    opened = told.opened(receiver)
    return f"{minutes_after(told, opened[0].at_seconds)}: {_heads(opened[0])}" if opened else "–"


def _heads(sent: Sent) -> str:
    named = sorted({f"{alert_name(alert)}{_own(alert)}" for alert in sent.firing})
    return ", ".join(named[:2]) + (f" and {len(named) - 2} more" if len(named) > 2 else "")


def _own(alert: AlertKey) -> str:
    own = [f"{name}={text}" for name, text in alert if name not in _USUAL]
    return f" ({', '.join(own)})" if own else ""


def _lasted(told: Told) -> list[str]:
    spans: dict[tuple[str, str], list[tuple[float, float | None]]] = {}
    for alert, span in told.fired().items():
        severity = dict(alert).get("severity", "")
        spans.setdefault((alert_name(alert), severity), []).append(span)
    return [
        f"{name} ({severity}{f' ×{len(found)}' if len(found) > 1 else ''}) {_span(told, found)}"
        for (name, severity), found in sorted(spans.items(), key=lambda item: min(begin for begin, _ in item[1]))
    ]


def _span(told: Told, found: list[tuple[float, float | None]]) -> str:
    cause = told.situation.cause_seconds or 0.0
    begin = min(begin for begin, _ in found)
    ends = [end for _, end in found]
    last = "on" if None in ends else f"{(max(end for end in ends if end is not None) - cause) / 60:.0f}"
    return f"{(begin - cause) / 60:.0f}–{last}"


def main() -> None:
    """Prints the table of the situations that are named, or of all but the slow ones."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of: {', '.join(SITUATIONS)}")
    parser.add_argument("--slow", action="store_true", help="also those that only the soak test plays")
    parser.add_argument(
        "--keep",
        type=Path,
        metavar="FOLDER",
        help="where samples stay: other rules are judged by them at once, as long as the simulator and the situations are the same",
    )
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - SITUATIONS.keys():
        parser.error(f"there is no situation {sorted(unknown)[0]}")
    names = arguments.names or [name for name, one in SITUATIONS.items() if arguments.slow or not one.slow]
    with tempfile.TemporaryDirectory() as folder:
        found = play([SITUATIONS[name] for name in names], arguments.keep or Path(folder))
    print(write_table(found[name] for name in names), end="")


if __name__ == "__main__":
    main()
