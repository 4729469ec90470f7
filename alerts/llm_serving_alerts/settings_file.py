"""The settings file -> Settings, or every reason why not. The defaults are a file of the same form, so that each is written once."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from importlib import resources
from typing import Any, TypeVar

from llm_serving_alerts.alerting import ALERTS
from llm_serving_alerts.declare import Alert
from llm_serving_alerts.promql import DAY, WORKLOAD
from llm_serving_alerts.rules import ALERT_PREFIX
from llm_serving_alerts.settings import (
    FOR,
    LABEL_NAME,
    LABEL_VALUE,
    LATENCY_SLOS,
    OF_RULES,
    RANGE,
    SEVERITY,
    SLOS,
    STATED_BY_WORKLOAD,
    AlertSettings,
    Baseline,
    BurnWindow,
    NodeLoss,
    Objective,
    Panels,
    Receivers,
    Settings,
    Workload,
    choose_external,
    refuse_identity,
    refuse_unknown_labels,
)
from llm_serving_exporter.catalogue.spec import LABELS
from llm_serving_exporter.engines.registry import RUNTIMES
from llm_serving_exporter.errors import ConfigError, Problem
from llm_serving_exporter.settings import kinds
from llm_serving_exporter.settings.checks import slo_warnings
from llm_serving_exporter.settings.config import SloConfig
from llm_serving_exporter.settings.document import parse_yaml, read_document
from llm_serving_exporter.settings.keys import (
    Key,
    Keys,
    elements,
    is_empty,
    keys_of,
    mapping,
    read_complete,
    type_name,
    value,
)
from llm_serving_exporter.settings.kinds import Kind, format_duration
from llm_serving_exporter.settings.problems import Node, Place, Scalar, did_you_mean

T = TypeVar("T")
DEFAULTS = "settings.yml"
# a rate needs two samples, and a scrape may fail or come late
LEAST_SCRAPES = 4
SHORTEST_RANGE_SECONDS = 300.0  # of the recording rules, which are named after it
# of a week at least one day has to be left to look at
LONGEST_HISTORY_SECONDS = 6 * DAY

_PANEL = "A panel of the dashboards shows it. Remove the line."
# what alerts of earlier versions have become
FORMER = {
    **dict.fromkeys(("BandwidthUnderused", "IdleSpend", "LongContextShare", "NoRedundancy"), _PANEL),
    **dict.fromkeys(("QueuedWithFreeKV", "TTFTHigh", "UnpricedGPU"), _PANEL),
    **dict.fromkeys(("TTFTBurnFast", "TTFTBurnSlow"), "Write TTFTBurn, which has both severities."),
    **dict.fromkeys(("SLOBurnFast", "SLOBurnSlow"), "Write SLOBurn, which has both severities."),
    "KVFilling": "It is a part of KVSaturated: write filling_above and within there.",
    **dict.fromkeys(("GPUXid", "GPULost"), "Write GPUFailed."),
    **dict.fromkeys(("GPUEcc", "GPURemapPending"), "Write GPUMemoryFault."),
    "ShardMissing": "It is a part of ExporterAbsent: write warning_for there.",
}  # fmt: skip


def default_settings() -> Settings:
    """The packaged defaults. They are good by test; a fault in them is a bug."""
    return read_settings(None)[0]


def defaults_text() -> str:
    """The packaged settings file, with its comments: what a user copies."""
    return resources.files("llm_serving_alerts").joinpath(DEFAULTS).read_text(encoding="utf-8")


def read_settings(path: str | None) -> tuple[Settings, tuple[str, ...]]:
    """The settings of a file over the defaults, and warnings in sentences. Raises ConfigError with every fault found."""
    problems: list[Problem] = []
    defaults = parse_yaml(defaults_text(), Place(DEFAULTS, "", problems))
    assert isinstance(defaults, dict)
    place = Place(path or DEFAULTS, "", problems)
    stated = None if path is None else read_document(path, place)
    settings = _Reader(defaults, mapping(stated, place, defaults), place).settings()
    if problems or settings is None:
        raise ConfigError(*problems)
    return settings, tuple(_warnings(settings))


def _warnings(settings: Settings) -> Sequence[str]:
    thresholds = {name: settings.slo[name].threshold_seconds for name in LATENCY_SLOS}
    slo = SloConfig(thresholds["ttft"], thresholds["itl"], thresholds["e2e"])
    tables = [RUNTIMES[name] for name in settings.runtimes]
    return [warning for table in tables for warning in slo_warnings(slo, table.default_edges, table.title)]


class _Reader:
    """Takes two trees apart, the user's before the defaults'; every fault is reported at its place in the user's."""

    def __init__(self, defaults: Mapping[str, Node], stated: Mapping[str, Node], place: Place) -> None:
        self._defaults, self._stated, self._place = defaults, stated, place

    def settings(self) -> Settings | None:
        given = self._values(keys_of(Settings))
        scrape = given.get("scrape_interval_seconds", 0.0)
        if LEAST_SCRAPES * scrape > SHORTEST_RANGE_SECONDS:
            longest = format_duration(SHORTEST_RANGE_SECONDS / LEAST_SCRAPES)
            what = f"the rules' ranges of {format_duration(SHORTEST_RANGE_SECONDS)} would not hold four scrapes"
            self._place.key("scrape_interval").refuse(what, f"Scrape every {longest} or more often.")
            scrape = 0.0
        identity = given.get("identity_labels", ())
        refuse_identity(identity, self._place.key("identity_labels"))
        external = choose_external(identity, given.get("external_labels"), self._place.key("external_labels"))
        given["external_labels"] = external
        of_targets = [name for name in identity if name not in external]
        refuse_unknown_labels(given.get("retired", ()), identity, self._place.key("retired"))
        slo, period = self._slo()
        settings = Settings(
            **given,
            labels=self._labels(*self._find_key("labels"), identity),
            slo=slo,
            period_seconds=period,
            burn=self._burn(slo, period),
            baseline=self._baseline(),
            receivers=Receivers(**self._section("receivers")._values(keys_of(Receivers))),
            panels=Panels(**self._section("panels")._values(keys_of(Panels))),
            node_loss=self._node_loss(of_targets),
            drill_max_age_seconds=self._section("drill")._value("max_age", kinds.THRESHOLD) or None,
            alerts=self._alerts(scrape, identity),
        )
        return None if self._place.problems else settings

    # --- pieces -----------------------------------------------------------------------------------------------------

    def _values(self, keys: Keys) -> dict[str, Any]:
        """The values of declared keys, by field: the user's, else the default's. What is not usable is reported and left out."""
        values = {key.field: self._read(key) for key in keys.values()}
        return {attribute: content for attribute, content in values.items() if content is not None}

    def _value(self, name: str, kind: Kind[T]) -> T | None:
        """The same of a single key."""
        content: T | None = self._read(Key(kind, name=name))
        return content

    def _read(self, key: Key) -> Any:
        node, place = self._find_key(key.name)
        # null is a value where it is the default, as the printed settings have it
        by_default = key.name in self._defaults and is_empty(self._defaults[key.name])
        unset = node is None or (is_empty(node) and (key.name not in self._stated or by_default))
        return None if unset or node is None else key.read(node, place)

    def _find_key(self, key: str) -> tuple[Node | None, Place]:
        return self._stated.get(key, self._defaults.get(key)), self._place.key(key)

    def _section(self, key: str) -> _Reader:
        defaults = self._defaults.get(key)
        assert isinstance(defaults, dict)
        place = self._place.key(key)
        return _Reader(defaults, mapping(self._stated.get(key), place, defaults), place)

    @staticmethod
    def _labels(node: Node | None, place: Place, identity: Collection[str]) -> dict[str, str]:
        labels: dict[str, str] = {}
        for name, content in mapping(node, place, node if isinstance(node, dict) else ()).items():
            at = place.key(name)
            LABEL_NAME.read(name, at)
            if name in OF_RULES or name in LABELS or name in WORKLOAD or name in identity:
                at.refuse("this label belongs to the rules", "Choose another name.")
            if (text := value(content, at, LABEL_VALUE)) is not None:
                labels[name] = text
        return labels

    def _slo(self) -> tuple[dict[str, Objective], float]:
        section, objectives = self._section("slo"), {}
        for name in SLOS:
            of_slo = section._section(name)
            threshold = of_slo._value("threshold", kinds.THRESHOLD) if name in LATENCY_SLOS else None
            objectives[name] = Objective(of_slo._value("objective", kinds.OBJECTIVE) or 1.0, threshold or None)
        return objectives, section._value("period", kinds.DURATION) or 1.0

    def _burn(self, slo: Mapping[str, Objective], period: float) -> dict[str, tuple[BurnWindow, ...]]:
        section = self._section("burn")
        return {speed: tuple(section._windows(speed, slo, period)) for speed in ("fast", "slow")}

    def _windows(self, speed: str, slo: Mapping[str, Objective], period: float) -> list[BurnWindow]:
        windows = []
        example = "Write {long: 1h, short: 5m, factor: 14.4}."
        for node, at in elements(*self._find_key(speed), "mappings such as {long: 1h, short: 5m, factor: 14.4}"):
            read = read_complete(keys_of(BurnWindow), node, at, example)
            if read is None:
                continue
            window, fix = BurnWindow(**read), "Write for example {long: 1h, short: 5m, factor: 14.4}."
            long, short, factor = window.long_seconds, window.short_seconds, window.factor
            step = format_duration(SHORTEST_RANGE_SECONDS)
            if long % SHORTEST_RANGE_SECONDS or short % SHORTEST_RANGE_SECONDS:
                at.refuse(f"a window is not a multiple of {step}, the step in which events are counted", fix)
            if not SHORTEST_RANGE_SECONDS <= short < long <= period:
                at.refuse(f"the windows must be {step} <= short < long <= period", fix)
            for name, objective in slo.items():
                if name in LATENCY_SLOS and objective.threshold_seconds is None:
                    continue
                if factor * objective.budget >= 1:
                    most = 1 / objective.budget
                    what = (
                        f"a factor of {factor:g} can never be reached by {name}: with an objective of "
                        f"{objective.objective:g} the budget is spent at most {most:g} times too fast"
                    )
                    at.key("factor").refuse(what, f"Write a factor below {most:g}, or a higher objective.")
            windows.append(window)
        if not windows and not self._place.problems:
            self._place.key(speed).refuse("there is no window", "Keep one, or switch the alerts off.")
        return windows

    def _baseline(self) -> Baseline:
        section = self._section("baseline")
        baseline = Baseline(**section._values(keys_of(Baseline)))
        if baseline.history_seconds > LONGEST_HISTORY_SECONDS:
            history = format_duration(baseline.history_seconds)
            what = f"{history} of history leaves nothing of the seven days that a baseline covers"
            section._place.key("history").refuse(what, f"Write {format_duration(LONGEST_HISTORY_SECONDS)} or less.")
        return baseline

    def _node_loss(self, of_targets: Collection[str]) -> NodeLoss:
        section = self._section("node_loss")
        example = "Write {model_name: …, namespace: …, kind: deployment, name: …}."
        node, place = section._find_key("workloads")
        entries = [
            read_complete(keys_of(Workload), entry, at, example)
            for entry, at in elements(node, place, "mappings such as {model_name: …, kind: deployment, …}")
        ]
        workloads = tuple(Workload(**entry) for entry in entries if entry is not None)
        asked = [name for name in of_targets if name not in STATED_BY_WORKLOAD]
        for number, workload in enumerate(workloads if None not in entries else ()):
            at = place.item(number)
            # their replicas are added up; two models of one workload are two entries
            if (first := workloads.index(workload)) < number:
                at.refuse(f"the same entry stands at [{first}], and would count twice", "Keep one.")
            for name in asked:
                if name not in workload.labels:
                    what = f"{name} is one of identity_labels, and is missing"
                    at.key("labels").refuse(what, f"Write labels: {{{name}: …}}.")
            for name in workload.labels:
                if name not in asked:
                    what = "it tells no targets of the workload from others"
                    at.key("labels").key(name).refuse(what, "Remove it.")
        return NodeLoss(**section._values(keys_of(NodeLoss)), workloads=workloads)

    # --- alerts -----------------------------------------------------------------------------------------------------

    def _alerts(self, scrape_seconds: float, identity: Collection[str]) -> dict[str, AlertSettings]:
        node, place = self._stated.get("alerts"), self._place.key("alerts")
        names = [alert.name for alert in ALERTS]
        stated: dict[str, tuple[Node, Place]] = {}
        for key, content in (node if isinstance(node, dict) else {}).items():
            name = key.removeprefix(ALERT_PREFIX)
            if name in FORMER:
                place.key(key).refuse("there is no such alert any more", FORMER[name])
            elif name not in names:
                place.key(key).refuse("there is no such alert", did_you_mean(name, names))
            elif name in stated:
                place.key(key).refuse("the alert is given twice, with and without prefix", "Keep one of them.")
            else:
                stated[name] = content, place.key(key)
        if not is_empty(node) and not isinstance(node, dict):
            what = "must be a mapping (key: value)" + (f", not {type_name(node)}" if node is not None else "")
            place.refuse(what, "Write alerts: {PreemptionStorm: off}.")
        defaults = self._defaults["alerts"]
        assert isinstance(defaults, dict)
        return {
            alert.name: _alert(
                alert,
                defaults[alert.name],
                *stated.get(alert.name, ({}, place.key(alert.name))),
                scrape_seconds,
                identity,
            )
            for alert in ALERTS
        }


def _alert(
    alert: Alert, default: Node, stated: Node, place: Place, scrape_seconds: float, identity: Collection[str]
) -> AlertSettings:
    assert isinstance(default, dict)
    # its numbers stay, because recording rules go by some of them
    enabled = not (isinstance(stated, Scalar) and stated.text.lower() in ("off", "false", "no"))
    if not enabled:
        stated = {}
    keys = ("for", "severity", "labels", *alert.values)
    reader = _Reader(default, mapping(stated, place, keys, {"enabled": f"Write {alert.name}: off."}), place)
    severity = reader._value("severity", SEVERITY)
    if severity is not None and len(alert.tiers) > 1:
        fix = "Set severity_cap, or its thresholds."
        place.key("severity").refuse("the alert has a threshold for each severity", fix)
    values: dict[str, float] = {}
    for name, kind in alert.values.items():
        number: Any = reader._value(name, kind)
        values[name] = float(number or 0.0)
        if kind is RANGE and number is not None and number < LEAST_SCRAPES * scrape_seconds:
            what = f"{format_duration(number)} does not hold four scrapes of {format_duration(scrape_seconds)}"
            place.key(name).refuse(what, f"Write {format_duration(LEAST_SCRAPES * scrape_seconds)} or more.")
    if values.get("critical_below", 0.0) >= values.get("warning_below", 1.0):
        place.key("critical_below").refuse("it is not below warning_below", "A page asks for more than a ticket does.")
    return AlertSettings(
        enabled,
        reader._value("for", FOR) or 0.0,
        severity,
        reader._labels(*reader._find_key("labels"), identity),
        values,
    )
