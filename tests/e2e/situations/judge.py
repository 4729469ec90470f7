"""Whether people were told of a situation what they should be: four aspects, each with what is wrong, or "" where it holds."""

import re
from collections.abc import Callable, Collection, Mapping

from tests.e2e.situations.play import PAGER, TICKETS, Told, alert_name
from tests.e2e.situations.situation import Notice

PEOPLE = (PAGER, TICKETS)
# the short window of the slow pairs is two to six hours
_BUDGETS = {(name, "warning") for name in ("TTFTBurn", "TTFTBurnSlow", "SLOBurn", "SLOBurnSlow")}


def judge_telling(told: Told) -> str:
    """The page and the ticket that must come do so in time and with their labels; what must last still fires at the end."""
    expected = told.situation.expected
    if expected.page is not None and not _is_told(told, (PAGER,), expected.page):
        return f"no page {_shown(expected.page)}"
    if expected.ticket is not None and not _is_told(told, PEOPLE, expected.ticket):
        return f"no ticket {_shown(expected.ticket)}"
    ended = expected.lasts - {alert_name(alert) for alert, (_begin, end) in told.fired().items() if end is None}
    return f"{', '.join(sorted(ended))} must last" if ended else ""


def judge_silence(told: Told) -> str:
    """Nothing that must be silent fires, and nobody is told of anything before its cause."""
    expected, cause = told.situation.expected, told.situation.cause_seconds
    if loud := {alert_name(alert) for alert in told.fired()} & expected.silent:
        return f"{', '.join(sorted(loud))} must be silent"
    early = [one for one in told.sent if one.receiver in PEOPLE and cause is not None and one.at_seconds < cause]
    names = {alert_name(alert) for one in early for alert in one.firing}
    return f"{', '.join(sorted(names))} before the cause" if names else ""


def judge_counts(told: Told) -> str:
    """No more pages and tickets than there are causes."""
    expected = told.situation.expected
    pages, tickets = len(told.opened(PAGER)), len(told.opened(TICKETS))
    if pages > expected.most_pages:
        return f"{pages} pages, at most {expected.most_pages}"
    return f"{tickets} tickets, at most {expected.most_tickets}" if tickets > expected.most_tickets else ""


def judge_ends(told: Told) -> str:
    """After the repair what was told of is over, in time; what is told of a budget that was spent is so for its windows."""
    situation = told.situation
    within, repaired = situation.expected.ends_within_seconds, situation.repaired_seconds
    if within is None or repaired is None:
        return ""
    late = {
        alert_name(alert)
        for alert, (_begin, end) in told.fired().items()
        if dict(alert)["severity"] in ("critical", "warning")
        and (alert_name(alert), dict(alert)["severity"]) not in _BUDGETS
        and (end is None or end > repaired + within)
    }
    return f"{', '.join(sorted(late))} {within / 60:.0f} min after the repair" if late else ""


ASPECTS: Mapping[str, Callable[[Told], str]] = {
    "tells": judge_telling,
    "quiet": judge_silence,
    "counts": judge_counts,
    "ends": judge_ends,
}


def _is_told(told: Told, receivers: Collection[str], notice: Notice) -> bool:
    cause = told.situation.cause_seconds or 0.0
    return any(
        alert_name(alert) in notice.names
        and all(re.fullmatch(text, dict(alert).get(name, "")) for name, text in notice.labels.items())
        for sent in told.sent
        if sent.opens and sent.receiver in receivers and cause <= sent.at_seconds <= cause + notice.within_seconds
        for alert in sent.firing
    )


def _shown(notice: Notice) -> str:
    labels = f" ({', '.join(f'{name}={text}' for name, text in notice.labels.items())})" if notice.labels else ""
    return f"{' or '.join(notice.names)}{labels} within {notice.within_seconds / 60:.0f} min"
