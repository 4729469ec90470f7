"""Check exporter, signals: what a workload's replicas had, and some of them lack now."""

from __future__ import annotations

from llm_serving_alerts.declare import Alert, Text, alert_matchers, label, lookup, of_model, value
from llm_serving_alerts.promql import MINUTE, WORKLOAD, Dialect, clauses
from llm_serving_alerts.records.memory import unless_retired
from llm_serving_alerts.records.signals import LOST
from llm_serving_alerts.records.workloads import ANSWERING, INTERVAL_SECONDS, WANTED
from llm_serving_alerts.rules import Check, Severity
from llm_serving_alerts.settings import AlertSettings, Settings
from llm_serving_alerts.shown import Shown

# Half of the moments of this window: a pod that has just started lacks some for a moment, and a rollout starts one after the other; an
# exporter that has just started says nothing for a while. What was repaired is over after half of it.
_WINDOW_SECONDS = 10 * MINUTE
_MOMENTS = round(_WINDOW_SECONDS / INTERVAL_SECONDS / 2)


def _find_lost(dialect: Dialect, matchers: str) -> str:
    return dialect.apply_over_time("max_over_time", f"{LOST}{{{matchers}}}", _WINDOW_SECONDS)


def _signal_lost(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> str:
    by = dialect.labels(*WORKLOAD)
    # of samples, so that it does not matter who marks the end of a series and who does not
    moments = dialect.apply_over_time("count_over_time", LOST, _WINDOW_SECONDS)
    wanted = clauses(
        (
            "signals that a replica lacked at half of the moments, and all of its workload had",
            f"count by ({by}) (max by ({dialect.labels(*WORKLOAD, 'signal')}) ({moments}) >= {_MOMENTS})",
        ),
        ("pods that nobody wants are still there for a moment", f"unless on ({by}) {WANTED} == 0"),
    )
    return unless_retired(dialect, settings, wanted, lambda matchers: _find_lost(dialect, matchers), *WORKLOAD)


def _signal_lost_text(dialect: Dialect, settings: Settings, own: AlertSettings) -> Text:
    names = tuple(dict.fromkeys((*dialect.identity, *WORKLOAD)))
    matchers, values = alert_matchers(names)
    versions = f"printf `count by (version) ({_find_lost(dialect, matchers)})` {values} | query"
    of_version = f"printf `{_find_lost(dialect, f'{matchers},version=%q')}` {values} .Labels.version | query"
    one = "{{ .Labels.signal }} ({{ .Labels.reason }}) on {{ .Value | humanize }}"
    some = f'{{{{ range $i, $one := {of_version} | sortByLabel "signal" }}}}{{{{ if $i }}}}, {{{{ end }}}}{one}{{{{ end }}}}'
    which = "{{ with .Labels.version }}version {{ . }}{{ else }}a version that is not known{{ end }}"
    said = f'{{{{ range {versions} | sortByLabel "version" }}}}{which} lacks {some}; {{{{ end }}}}'
    workload = "{{ with $labels.workload }}, workload {{ . }}{{ end }}"
    return Text(
        f"{of_model(dialect)}, {label('runtime')}{workload}: signals lost that all replicas had: {value()}",
        f"Of {lookup(dialect, ANSWERING, WORKLOAD, 'humanize')} replicas: {said}alerts and panels that depend on them are silent, not green.",
        "compare versions and flags of the replicas with those of before",
    )


SIGNALS = (
    Alert(
        "SignalLost",
        Check.EXPORTER,
        WORKLOAD,
        {Severity.WARNING: ""},
        _signal_lost,
        _signal_lost_text,
        Shown("exporter", "Missing signals"),
    ),
)
