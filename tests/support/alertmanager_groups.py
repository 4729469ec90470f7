"""What an Alertmanager sends of a timeline of alerts: its routes, groups, inhibitions and timers, worked out without waiting for them.

The same steps as Alertmanager 0.25 (`dispatch`, `inhibit`, `notify.DedupStage.needsUpdate`). `tests/e2e/test_alertmanager_groups.py` holds
the routes against `amtool config routes test` and the notifications against a real Alertmanager. Not worked out: silences and mute times
(the delivered `maintenance` lies in the past), `resolve_timeout` (Prometheus says when an alert ends).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from llm_serving_exporter.model.record import replace
from llm_serving_exporter.settings.kinds import parse_duration
from tests.support.yaml_text import load_yaml

# an alert's labels, sorted
AlertKey = tuple[tuple[str, str], ...]
_MATCHER = re.compile(r'\s*(\w+)\s*(=~|!~|!=|=)\s*"?((?:[^"\\]|\\.)*)"?\s*')


@dataclass(frozen=True)
class Matcher:
    """One condition on a label; a label that is not there is empty."""

    name: str
    operator: str
    text: str

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels satisfy it."""
        value = labels.get(self.name, "")
        matches = value == self.text if self.operator in ("=", "!=") else bool(re.fullmatch(self.text, value))
        return matches != self.operator.startswith("!")


@dataclass(frozen=True)
class Route:
    """A node of the tree, with what it inherits. Times in seconds."""

    matchers: tuple[Matcher, ...]
    receiver: str
    group_by: tuple[str, ...]
    group_wait: float
    group_interval: float
    repeat_interval: float
    goes_on: bool  # whether its later siblings are asked too
    routes: tuple[Route, ...] = ()

    def find(self, labels: Mapping[str, str]) -> list[Route]:
        """The routes that an alert takes."""
        if not all(matcher.holds(labels) for matcher in self.matchers):
            return []
        found: list[Route] = []
        for child in self.routes:
            taken = child.find(labels)
            found += taken
            if taken and not child.goes_on:
                break
        return found or [self]


@dataclass(frozen=True)
class Inhibition:
    """While a source fires, targets of equal labels are kept back."""

    source: tuple[Matcher, ...]
    target: tuple[Matcher, ...]
    equal: tuple[str, ...]

    def is_source(self, labels: Mapping[str, str]) -> bool:
        """Whether an alert keeps others back."""
        return all(matcher.holds(labels) for matcher in self.source)

    def is_target(self, labels: Mapping[str, str]) -> bool:
        """Whether an alert is kept back."""
        return all(matcher.holds(labels) for matcher in self.target)

    def keeps_back(self, labels: Mapping[str, str], firing: Iterable[Mapping[str, str]]) -> bool:
        """Whether any of those that fire keeps this one back. What is a source too is not kept back by such another (nor by itself)."""
        if not self.is_target(labels):
            return False
        both = self.is_source(labels)
        return any(
            self.is_source(other)
            and not (both and self.is_target(other))
            and all(other.get(name, "") == labels.get(name, "") for name in self.equal)
            for other in firing
        )


@dataclass(frozen=True)
class Sent:
    """One notification."""

    at_seconds: float
    receiver: str
    group: AlertKey
    firing: tuple[AlertKey, ...]
    resolved: tuple[AlertKey, ...]
    opens: bool  # whether the receiver knew of no incident under this group


@dataclass(frozen=True)
class Config:
    """What an alertmanager.yml says of who is told when."""

    route: Route
    inhibitions: tuple[Inhibition, ...]
    send_resolved: Mapping[str, bool]  # by receiver

    def keeps_back(self, labels: Mapping[str, str], firing: Sequence[Mapping[str, str]]) -> bool:
        """Whether an alert is inhibited by others that fire."""
        return any(one.keeps_back(labels, firing) for one in self.inhibitions)


def read_config(text: str) -> Config:
    """An alertmanager.yml as it is rendered."""
    document = load_yaml(text)
    top = Route((), "", (), 30.0, 300.0, 4 * 3600.0, False)
    return Config(
        _route(document["route"], top),
        tuple(
            Inhibition(
                _matchers(one["source_matchers"]), _matchers(one["target_matchers"]), tuple(one.get("equal", ()))
            )
            for one in document.get("inhibit_rules", ())
        ),
        {one["name"]: _sends_resolved(one) for one in document["receivers"]},
    )


def _route(node: Mapping[str, Any], above: Route) -> Route:
    own = replace(
        above,
        matchers=_matchers(node.get("matchers", ())),
        receiver=node.get("receiver", above.receiver),
        group_by=tuple(node.get("group_by", above.group_by)),
        group_wait=_seconds(node.get("group_wait"), above.group_wait),
        group_interval=_seconds(node.get("group_interval"), above.group_interval),
        repeat_interval=_seconds(node.get("repeat_interval"), above.repeat_interval),
        goes_on=bool(node.get("continue", False)),
        routes=(),
    )
    return replace(own, routes=tuple(_route(child, own) for child in node.get("routes", ())))


def _matchers(texts: Iterable[str]) -> tuple[Matcher, ...]:
    found = []
    for text in texts:
        matched = _MATCHER.fullmatch(text)
        assert matched, f"{text!r} is not a matcher"
        found.append(Matcher(*matched.groups()))
    return tuple(found)


def _seconds(text: str | None, inherited: float) -> float:
    return inherited if text is None else parse_duration(text)


def _sends_resolved(receiver: Mapping[str, Any]) -> bool:
    integrations = [one for key, found in receiver.items() if key.endswith("_configs") for one in found]
    # every integration of the delivered file says so itself
    return any(bool(one["send_resolved"]) for one in integrations)


@dataclass
class _Group:
    """An aggregation group: alerts of one route with equal group labels."""

    route: Route
    labels: AlertKey
    flush_at: float
    alerts: dict[AlertKey, bool] = field(default_factory=dict)  # whether it fires


@dataclass
class _Told:
    """What the notification log has of a group and a receiver."""

    at: float
    firing: frozenset[AlertKey]
    resolved: frozenset[AlertKey]


def send(config: Config, timeline: Sequence[tuple[float, frozenset[AlertKey]]], until_seconds: float) -> Iterator[Sent]:
    """The notifications, in order of time, of what fired at each evaluation. Evaluations are in order of time; an alert that is not in
    one has ended by then."""
    groups: dict[tuple[int, AlertKey], _Group] = {}
    log: dict[tuple[str, int, AlertKey], _Told] = {}
    known: dict[AlertKey, list[tuple[Route, tuple[int, AlertKey]]]] = {}
    firing_now: frozenset[AlertKey] = frozenset()
    moments = [*timeline, (until_seconds, None)]
    for at, firing in moments:
        # what is due before this evaluation
        while due := sorted((group.flush_at, key) for key, group in groups.items() if group.flush_at < at):
            when, key = due[0]
            group = groups[key]
            yield from _flush(config, group, key[0], when, firing_now, log)
            if group.alerts:
                group.flush_at = when + group.route.group_interval
            else:
                del groups[key]
        if firing is None:
            break
        for alert in firing | firing_now:
            for route, key in known.setdefault(alert, _places(config, alert)):
                found = groups.get(key)
                if found is None:
                    if alert not in firing:
                        continue
                    found = groups[key] = _Group(route, key[1], at + route.group_wait)
                if alert in firing or alert in found.alerts:
                    found.alerts[alert] = alert in firing
        firing_now = firing


def _places(config: Config, alert: AlertKey) -> list[tuple[Route, tuple[int, AlertKey]]]:
    labels = dict(alert)
    return [
        (route, (id(route), tuple((name, labels[name]) for name in sorted(route.group_by) if name in labels)))
        for route in config.route.find(labels)
    ]


def _flush(
    config: Config,
    group: _Group,
    route: int,
    at: float,
    firing_now: frozenset[AlertKey],
    log: dict[tuple[str, int, AlertKey], _Told],
) -> Iterator[Sent]:
    others = [dict(alert) for alert in firing_now]
    heard = {alert: fires for alert, fires in group.alerts.items() if not config.keeps_back(dict(alert), others)}
    firing = frozenset(alert for alert, fires in heard.items() if fires)
    resolved = frozenset(heard) - firing
    # what is over was looked at now
    group.alerts = {alert: True for alert, fires in group.alerts.items() if fires}
    key = (group.route.receiver, route, group.labels)
    before = log.get(key)
    if not heard or not _needs_update(config, group.route, before, firing, resolved, at):
        return
    log[key] = _Told(at, firing, resolved)
    resolves = config.send_resolved[group.route.receiver]
    if firing or resolves:
        sent = sorted(resolved) if resolves else ()
        opens = bool(firing) and (before is None or not before.firing)
        yield Sent(at, group.route.receiver, group.labels, tuple(sorted(firing)), tuple(sent), opens)


def _needs_update(
    config: Config,
    route: Route,
    before: _Told | None,
    firing: frozenset[AlertKey],
    resolved: frozenset[AlertKey],
    at: float,
) -> bool:
    if before is None:
        return bool(firing)
    if not firing <= before.firing:
        return True
    if not firing:
        return bool(before.firing)
    if config.send_resolved[route.receiver] and not resolved <= before.resolved:
        return True
    return before.at < at - route.repeat_interval
