"""Check exporter: what all others rest on: targets, exporters, who evaluates the rules, and that pages can be delivered."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from llm_serving_alerts.alerting.node_loss import name_lost_node, name_lost_node_of_target
from llm_serving_alerts.declare import (
    DIGITS,
    Alert,
    Shown,
    Text,
    alert_matchers,
    label,
    lookup,
    of_fleet,
    of_model,
    of_target,
    say_each,
    value,
)
from llm_serving_alerts.external import (
    DAEMONSET_PODS,
    NOTIFICATIONS,
    NOTIFICATIONS_FAILED,
    PROCESS_START,
    RULE_COUNTERS,
    RULE_STATES,
    UP,
    find_group_label,
)
from llm_serving_alerts.promql import HOUR, MINUTE, MODEL, TARGET, TARGETS, Dialect, clauses, seconds_text, series
from llm_serving_alerts.records.history import EXPORTERS, SERVED
from llm_serving_alerts.records.presence import (
    DOWN_ALONE,
    DOWN_RATIO,
    EXPORTERS_OF_JOB,
    LOST_NODES,
    OF_TARGETS,
    OFF_NODE,
    SIDECAR,
    UNREACHED,
    VANISHED,
    known_exporters,
    no_answer,
)
from llm_serving_alerts.records.rollouts import EXCUSED
from llm_serving_alerts.records.targets import DOWN, WANTED_NOW, known
from llm_serving_alerts.rules import GROUP_PREFIX, Check, Severity
from llm_serving_alerts.settings import EXCEEDED_RATIO, FOR, NUMBER, AlertSettings, Settings
from llm_serving_exporter.model.sample import FailureReason

# --- Check exporter: what starts, goes and comes back again and again.

_READY = "target:llm_serving_ready:max"
# a pod that served for longer than this was not one that crashes
_LASTS_SECONDS = 600.0


def _restarts(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> tuple[str, Text]:
    of_process = dialect.labels("instance", "job")
    # a target's start as two exporters see it may differ by rounding: each is counted for itself
    starts = dialect.apply_over_time("changes", series("target_start_time_seconds"), HOUR)
    # a page may not say when its server started: then that is when its exporter, which has restarted, saw it first
    restarts = f"max by ({of_process}) ({dialect.apply_over_time('changes', PROCESS_START, HOUR)})"
    on_target = dialect.labels("target", "instance", "job")
    servers = f"({starts} - on ({of_process}) group_left () {restarts} or on ({on_target}) {starts})"
    started = dialect.one(servers, "target")
    # between two starts there is no exporter to say what it is
    ours = dialect.apply_over_time("last_over_time", series("exporter_build_info"), HOUR)
    own_starts = f"{dialect.apply_over_time('changes', PROCESS_START, HOUR)} and on ({of_process}) {ours}"
    expr = clauses(
        ("a server starts again and again", f"{started} >= {own['starts']:g}"),
        (
            "or cannot be reached again and again, for less than half of the time",
            f"or {_outages(dialect, settings, own)}",
        ),
        ("or pods of a workload come under new names, and none of them lasts", f"or {_short_lived(dialect, own)}"),
        ("or an exporter starts again and again", f"or {dialect.one(own_starts, 'instance')} >= {own['starts']:g}"),
    )

    def each(target: str, workload: str, exporter: str) -> str:
        return f"{{{{ if $labels.target }}}}{target}{{{{ else if $labels.workload }}}}{workload}{{{{ else }}}}{exporter}{{{{ end }}}}"

    return expr, Text(
        each(
            f"{label('target')}: went and came back {value()} times in an hour",
            f"{label('namespace')}/{label('workload')}: {value()} pods in an hour that did not last",
            f"Exporter {label('instance')}: {value()} starts in an hour",
        ),
        each(
            "It starts again and again, or cannot be reached again and again: users meet cold caches, lost requests and a replica that is not there.",
            f"Each came under a new name, was ready for less than {seconds_text(_LASTS_SECONDS)} and is gone: something ends them, or they end themselves.",
            "It starts again and again: its series have gaps, and everything based on them is late.",
        ),
        "read the log of the last exit: out of memory, a bad flag, a failing probe",
    )


def _outages(dialect: Dialect, settings: Settings, own: AlertSettings) -> str:
    """How often a target went and came back within an hour; what is away for longer than it is there is TargetDown's."""
    by_target = dialect.labels("target")
    times = f"floor(max by ({by_target}) ({dialect.apply_over_time('changes', DOWN, HOUR)}) / 2)"
    mostly = f"({dialect.half(DOWN, settings.alerts['TargetDown'].for_seconds)})"
    # nor what was so within the hour: its outages are still counted when that alert is over
    lately = dialect.apply_over_time("last_over_time", mostly, HOUR, 10 * MINUTE)
    return f"{times} >= {own['outages']:g} unless on ({by_target}) {lately}"


def _short_lived(dialect: Dialect, own: AlertSettings) -> str:
    """Pods that came and went within an hour, none of them ready for more than a few minutes, by workload: what crashes or is evicted
    again and again under a new name each time has no target that starts twice. A rollout's or an autoscaler's pods last, or lasted."""
    of_target = dialect.key("target")
    known = f'{TARGETS}{{workload!=""}}'
    seen = dialect.apply_over_time("last_over_time", known, HOUR)
    served = dialect.apply_over_time("sum_over_time", _READY, HOUR, MINUTE)
    gone = (
        f"{seen} unless on ({of_target}) {TARGETS} unless on ({of_target}) {dialect.offset(TARGETS, HOUR)}"
        f" unless on ({of_target}) {served} >= {_LASTS_SECONDS / MINUTE:g}"
    )
    return f"count by ({', '.join(dict.fromkeys((*dialect.identity, 'namespace', 'workload')))}) ({gone}) >= {own['starts']:g}"


RESTART_LOOP = Alert(
    "RestartLoop", Check.EXPORTER, ("target", "instance", "namespace", "workload"), {Severity.WARNING: ""}, _restarts, Shown("exporter"),
    {"starts": NUMBER, "outages": NUMBER},
)  # fmt: skip


# --- Check exporter, who evaluates the rules: rules that fail and groups that come too late, on whatever evaluates them.

# shorter than the alert's own time: what happened once is over before it
_SECONDS = 600.0
_OURS = GROUP_PREFIX.replace(".", "[.]") + ".+"


def _troubles(dialect: Dialect, matchers: str = "") -> Iterator[tuple[str, str]]:
    """Words and PromQL by group of ours: what was counted, and what is so now."""
    for words, counters in RULE_COUNTERS.items():
        grown = (dialect.increase(_select_group(counter, matchers), _SECONDS) for counter in counters)
        yield words, " or ".join(f"{one} > 0" for one in grown)
    for words, states in RULE_STATES.items():
        yield words, " or ".join(f"{_select_group(state, matchers)} > 0" for state in states)


def _select_group(series: str, matchers: str) -> str:
    label = find_group_label(series)
    # Prometheus, Thanos and Mimir write file;group
    ours = f".*;{_OURS}" if label == "rule_group" else _OURS
    return f'{series}{{{label}=~"{ours}"{matchers}}}'


def _failing(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> tuple[str, Text]:
    parts = [
        (words, query if number == 0 else f"or {query}") for number, (words, query) in enumerate(_troubles(dialect))
    ]
    # several rules of one group, and what both failed and came late, are one group
    by_group = f"count by ({dialect.labels('instance')}, rule_group, group) ({clauses(*parts)})"
    expr = f"count by ({dialect.labels('instance')}) ({by_group})"
    names = (*dialect.external, "instance")
    # the same values stand at several places of the query
    matchers = "".join(f",{name}=%[{number}]q" for number, name in enumerate(names, 1))
    troubles = " or ".join(query for _, query in _troubles(dialect, matchers))
    _, values = alert_matchers(names)
    query = f"printf `count by (rule_group, group) ({troubles})` {values}"
    groups = f'{{{{ range {query} | query | sortByLabel "rule_group" }}}}{{{{ .Labels.rule_group }}}}{{{{ .Labels.group }}}} {{{{ end }}}}'
    return expr, Text(
        f"{label('instance')}: groups of rules that fail or come too late: {value()}",
        f"Again and again within the last 10m: {groups}- what these groups record is old or missing, and what they alert on is found late or not at all.",
        "read the rule's error on the rules page; look at its memory and CPU",
    )


EVALUATION = (
    Alert("RulesFailing", Check.EXPORTER, ("instance",), {Severity.WARNING: ""}, _failing, Shown("exporter")),
)  # fmt: skip


# --- Check exporter, the view itself: exporters that are gone, and a fleet that nobody reaches.

_NONE, _SOME = "none", "some"
# as the chart names it, whatever stands before and after
_DAEMONSET = 'daemonset=~".*llm-serving-exporter.*"'
# a rollout replaces one exporter after the other: at some moment of these all are there
_WHILE_SECONDS = 10 * MINUTE


def _absent(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> tuple[str, Text]:
    expr = _no_exporter(dialect) if tier == _NONE else _some_gone(dialect)
    where = "".join(f"{{{{ with $labels.{name} }}}}{{{{ . }}}} {{{{ end }}}}" for name in dialect.external)
    matchers, values = alert_matchers((*dialect.external, "job"))
    known = known_exporters(dialect, matchers)
    which = f"{known} and on ({dialect.key('job', 'instance')}) {dialect.bare(UP, 'job', 'instance')} == 0"
    names = f'{{{{ range printf `{which}` {values} | query | sortByLabel "instance" }}}} {{{{ .Labels.instance }}}}{{{{ end }}}}'
    one = f"{{{{ if $labels.shard }}}}shard {label('shard')}: no exporter reads it{{{{ else if $labels.job }}}}"
    several = f"{value()} exporters of job {label('job')} are gone"
    return expr, Text(
        f"{where}{one}{several}{{{{ else if eq $value 0.0 }}}}no llm-serving-exporter is scraped{{{{ else }}}}"
        f"{value()} exporters of a DaemonSet are not scraped{{{{ end }}}}",
        "{{ if eq $value 0.0 }}No exporter is scraped any more: every other alert of this pack is blind.{{ else }}"
        f"Nothing is seen of the servers that they read, and no alert about those can fire.{{{{ if $labels.job }}}} Do not answer:{names}.{{{{ end }}}}{{{{ end }}}}",
        "look at Prometheus' targets page, then at the exporters; until they are back watch their servers by hand",
    )


def _no_exporter(dialect: Dialect) -> str:
    fleet, sidecars = dialect.key(), known_exporters(dialect, f'mode="{SIDECAR}"')
    had = f"count by ({fleet}) ({known_exporters(dialect)})"
    # those in the pods of their engines go with these: ReplicaLost and TargetsDown tell of them
    nobody = f"absent({series('exporter_build_info')}) unless on () {sidecars}"
    # of how many are gone the ticket's value tells, here none is left
    return f"({had} unless on ({fleet}) {series('exporter_build_info')} or on () ({nobody})) * 0"


def _some_gone(dialect: Dialect) -> str:
    by_job, fleet = dialect.key("job"), dialect.key()
    parts = f"{_silent(dialect)} or on ({by_job}) {_fewer(dialect)} or {_of_daemonset(dialect)} or {_unread_shards(dialect)}"
    # of a fleet without any the page tells
    return f"({parts}) and on ({fleet}) {EXPORTERS}"


def _gone(dialect: Dialect, matchers: str = "") -> tuple[str, str]:
    """Exporters that are known and do not answer, and those that were on a lost node: of them NodeLost tells."""
    of_exporter = dialect.key("job", "instance")
    ours = known_exporters(dialect, matchers) if matchers else known_exporters(dialect)
    return (
        f"{ours} and on ({of_exporter}) ({no_answer(dialect)})",
        f"{ours} and on ({dialect.key('node')}) {LOST_NODES} == 1",
    )


def _silent(dialect: Dialect) -> str:
    silent, lost = _gone(dialect)
    return f"count by ({dialect.key('job')}) ({silent} unless on ({dialect.key('job', 'instance')}) ({lost}))"


def _fewer(dialect: Dialect) -> str:
    """How many fewer a job has than there were at once within the last hour. Where a DaemonSet says how many there should be it knows better:
    nodes come and go."""
    by_job = dialect.key("job")

    def most(exporters: str) -> str:
        return dialect.apply_over_time("max_over_time", exporters, _WHILE_SECONDS)

    def most_steadily(exporters: str) -> str:
        # a rollout replaces one after the other: of those that come and go none is there for all of a while
        steady = dialect.apply_over_time("min_over_time", exporters, _WHILE_SECONDS)
        return dialect.apply_over_time("max_over_time", steady, HOUR, _WHILE_SECONDS)

    before, now = (f"sum by ({by_job}) ({_counted(dialect, function)})" for function in (most_steadily, most))
    _, lost = _gone(dialect)
    none = f"or on ({by_job}) {before} * 0"
    return f"({before} - on ({by_job}) ({now} {none}) - on ({by_job}) (count by ({by_job}) ({lost}) {none}) > 0)"


def _counted(dialect: Dialect, function: Callable[[str], str]) -> str:
    central, others = (function(f'{EXPORTERS_OF_JOB}{{mode{sign}"central"}}') for sign in ("=", "!="))
    return f"{central} or {others} unless on ({dialect.key()}) {DAEMONSET_PODS}{{{_DAEMONSET}}}"


def _of_daemonset(dialect: Dialect) -> str:
    """How many fewer there are than Kubernetes is to run, but for those of which another part tells."""
    fleet = dialect.key()
    pods = f"max by ({dialect.key('namespace', 'daemonset')}) ({DAEMONSET_PODS}{{{_DAEMONSET}}})"
    wanted = f"sum by ({fleet}) ({pods})"
    silent, lost = _gone(dialect, OFF_NODE)
    there = f"count by ({fleet}) ({EXPORTERS}{{{OFF_NODE}}} or {silent} or {lost})"
    return f"{wanted} - on ({fleet}) {there} > 0"


def _unread_shards(dialect: Dialect) -> str:
    return f"({dialect.bare(series('exporter_shard_held'), 'shard')} == 0) + 1"


def _unreachable(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> tuple[str, Text]:
    expr = f"{UNREACHED} > {own['above']:g}"
    matchers, values = alert_matchers(dialect.external)
    down = f"{DOWN_RATIO}{{{matchers}}} > {own['above']:g}"
    query = f"printf `{down}` {values} | query" if dialect.external else f"query `{down}`"
    models = say_each(query, "model_name", "{{ $one.Labels.model_name }}")
    return expr, Text(
        f"{of_fleet(dialect)}{value('humanizePercentage')} of all replicas cannot be reached",
        f"Most replicas of several models or nodes went at once: {models}. That is the network, what they share, or the exporters' view of them. "
        "Alerts about single models and nodes of this fleet are not told while this page is open.",
        "ask a server by hand from elsewhere: users may still be served",
    )


EXPORTERS_ALERTS = (
    Alert("FleetUnreachable", Check.EXPORTER, (), {Severity.CRITICAL: ""}, _unreachable, Shown("exporter"), {"above": EXCEEDED_RATIO}),
    Alert("ExporterAbsent", Check.EXPORTER, ("job", "shard"), {Severity.WARNING: _SOME, Severity.CRITICAL: _NONE}, _absent, Shown("exporter"), {"warning_for": FOR}, separate=True),
)  # fmt: skip


# --- Check exporter: what all others rest on: targets, the exporter, and that pages can be delivered.

# a page that failed within so long fails now: it is asked for at least once a minute
_LATELY_SECONDS = 5 * MINUTE
_DESIRED = "model:llm_serving_desired_replicas:max"
_KNOWN = "model:llm_serving_targets:count"


def _target_down(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> tuple[str, Text]:
    rolling = f" unless on ({dialect.labels(*MODEL)}) {EXCUSED} > 0" if settings.node_loss.workloads else ""
    expr = name_lost_node_of_target(dialect, settings, f"{dialect.half(DOWN_ALONE, own.for_seconds)}{rolling}")
    return expr, Text(
        f"{of_target(dialect)}: down",
        "The server does not answer, and it is neither loading nor asleep. The exporter's landing page has the last failures.",
        "look at the process and its log",
    )


def _page_fails(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> tuple[str, Text]:
    by_target = dialect.key("target")
    # of two exporters one may read it, and the last failure's series stays after it
    unread = f"min by ({by_target}) ({series('target_state', state='unknown')}) == 1"
    failed = dialect.bare(
        series("target_last_failure_timestamp_seconds", reason=FailureReason.PAGE_FAILS.value), "target"
    )
    expr = clauses(
        ("a server of which nobody can read the page", f"{known(dialect)} * on ({by_target}) group_left () ({unread})"),
        (
            "while it says that it is well",
            f"and on ({by_target}) {dialect.age(failed)} < {dialect.length(_LATELY_SECONDS)}",
        ),
    )
    return expr, Text(
        f"{of_target(dialect)}: its metrics page fails",
        "It serves: its health path answers, and its page alone does not. Nothing of its work is known, and alerts about it are silent, not green.",
        "look for the error of /metrics in its log",
    )


def _targets_down(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> tuple[str, Text]:
    by_model, most = dialect.labels(*MODEL), own["above"]
    # nobody misses at once a model that nobody used, or says that he wants: ReplicaLost tells of it
    idle = f"({VANISHED} unless on ({by_model}) {WANTED_NOW} unless on ({by_model}) {SERVED} == 1)"
    firing = f"{DOWN_RATIO} > {most:g} unless on ({by_model}) {idle}"
    expr = name_lost_node(dialect, firing, f"({DOWN_RATIO} - {most:g}) * on ({by_model}) {OF_TARGETS}")
    matchers, values = alert_matchers((*dialect.identity, *MODEL))
    gone = f"{{{{ if printf `{VANISHED}{{{matchers}}}` {values} | query }}}}"
    return expr, Text(
        f"{of_model(dialect)}: {value('humanizePercentage')} of its replicas are {gone}gone{{{{ else }}}}down{{{{ end }}}}",
        f"Replicas wanted: {lookup(dialect, _DESIRED, MODEL, DIGITS)}, known: {lookup(dialect, _KNOWN, MODEL, 'humanize')}. "
        f"{gone}It served, and no exporter finds any of them any more.{{{{ else }}}}{value('humanizePercentage')} of them do not answer, neither loading "
        "nor asleep.{{ end }}",
        "look for what they share: node pool, registry, weights, network",
    )


def _reload(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> tuple[str, Text]:
    expr = f"{dialect.one(series('exporter_config_reload_success'), 'instance')} == 0"
    return expr, Text(
        f"Exporter {label('instance')}: its configuration was not reloaded",
        "The file on disk is not what runs: the last reload was refused, and the exporter keeps the previous one.",
        "run llm-serving-exporter check-config on the file",
    )


def _notifications(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> tuple[str, Text]:
    # by reason, from 0.26 on
    by = dialect.labels("instance", "integration")
    failed, sent = (f"sum by ({by}) ({dialect.increase(one, 300)})" for one in (NOTIFICATIONS_FAILED, NOTIFICATIONS))
    expr = f"{failed} / on ({by}) ({sent} > 0) > {own['above']:g}"
    return expr, Text(
        f"Alertmanager {label('instance')} cannot deliver by {label('integration')}",
        f"{value('humanizePercentage')} of its notifications failed within 5m, and of those before. Pages may not arrive; this one came by another way.",
        "read Alertmanager's log; send a test page: llm-serving-exporter page-test",
    )


def _watchdog(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> tuple[str, Text]:
    expr = "vector(1)"
    return expr, Text(
        "Alerting works",
        "Always fires. When it stops arriving at the dead-man service, alerts do not arrive either.",
        "none while it arrives",
    )


EXPORTER = (
    Alert("TargetDown", Check.EXPORTER, (*TARGET, "node"), {Severity.WARNING: ""}, _target_down, Shown("exporter", "Target states"), halves=True),
    Alert("TargetsDown", Check.EXPORTER, (*MODEL, "node"), {Severity.CRITICAL: ""}, _targets_down, Shown("exporter"), {"above": EXCEEDED_RATIO}),
    Alert("PageFails", Check.EXPORTER, TARGET, {Severity.WARNING: ""}, _page_fails, Shown("exporter", "Failed scrapes by reason")),
    Alert("ConfigReloadFailed", Check.EXPORTER, ("instance",), {Severity.WARNING: ""}, _reload, Shown("exporter")),
    Alert("NotificationsFailing", Check.EXPORTER, ("instance", "integration"), {Severity.WARNING: ""}, _notifications, Shown("exporter"), {"above": EXCEEDED_RATIO}),
    RESTART_LOOP,
    Alert("Watchdog", Check.EXPORTER, (), {Severity.NONE: ""}, _watchdog, Shown("exporter"), bare=True),
)  # fmt: skip
