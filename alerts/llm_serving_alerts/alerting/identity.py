"""Check exporter, who is who, and what replicas lack: labels and names that are not what they should be, signals that are lost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from llm_serving_alerts.declare import Alert, Shown, Text, alert_matchers, label, lookup, of_model, say_each, value
from llm_serving_alerts.promql import MINUTE, MODEL, NODES, WORKLOAD, Dialect, clauses, one_of, series
from llm_serving_alerts.records.identity import GPU_CLAIMS, TARGET_CLAIMS, readable
from llm_serving_alerts.records.presence import unless_retired
from llm_serving_alerts.records.signals import ANSWERING, INTERVAL_SECONDS, LOST, WANTED
from llm_serving_alerts.records.targets import EXPECTED, FAILED, KNOWN, SUCCEEDED, keep_unclear
from llm_serving_alerts.rules import Check, Severity
from llm_serving_alerts.settings import AlertSettings, Settings
from llm_serving_exporter.catalogue import BY_NAME, METRICS
from llm_serving_exporter.catalogue.health import AS_WRITTEN
from llm_serving_exporter.catalogue.spec import IDENTITY_LABELS, NODE_LABELS, PREFIX, Kind

# --- Check exporter, who is who: labels of ours that a scrape has renamed or that say too little, and names that are claimed twice.

# where it is stated
_EXPECTATION, _DRILL = "expected_replicas", "drill"
_RENAMED, _OVERWRITTEN, _PARTLY, _UNCLEAR = "renamed", "overwritten", "partly", "unclear"


def _renamed(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> tuple[str, Text]:
    counted = f"count by ({dialect.key('job')})"
    renamed = [
        f'label_replace({counted} ({selector}), "label", "{name}", "", "")'
        for name, selector in _selectors(dialect)
        if name not in settings.renamed_labels
    ]
    overwritten = [
        f'label_replace({counted} ({targets}), "label", "{name}", "", "")'
        for name, targets in _overwritten(dialect)
        if name not in settings.renamed_labels
    ]
    partly = [f'label_replace({counted} ({targets}), "label", "{name}", "", "")' for name, targets in _partly(dialect)]
    unclear = list(_unclear(dialect)) if dialect.own else []
    expr = " or ".join(
        f'label_replace({" or ".join(queries)}, "how", "{how}", "", "")'
        for how, queries in ((_RENAMED, renamed), (_OVERWRITTEN, overwritten), (_PARTLY, partly), (_UNCLEAR, unclear))
        if queries
    )
    name = label("label")
    read = ", ".join(readable(dialect))
    said = {
        _OVERWRITTEN: _of_scrape(
            "lost",
            f"Something after the scrape writes its own {name} over ours, or takes ours away, such as enforcedNamespaceLabel or a relabelling: "
            f"{value()} targets cannot be distinguished by it.",
        ),
        _PARTLY: _of_scrape(
            "not the same on all",
            f"{value()} targets have a {name} of their own on their info series and not on the others, while external_labels of the rules says that a "
            "scrape puts it on every one. The two do not meet, and nothing is said of these targets.",
        ),
        _RENAMED: _of_scrape(
            f"stored as exported_{name}",
            f"The scrape puts a {name} of its own in its place, on {value()} of the series that were looked at. Rules read {read} "
            "under either name; what goes by any other label is wrong until that one has its name back.",
        ),
    }
    if dialect.own:
        said = {_UNCLEAR: _unclear_text(dialect), **said}
    return expr, Text(
        *(
            _choose_by_how({how: getattr(text, part) for how, text in said.items()})
            for part in ("summary", "description", "action")
        )
    )


def _selectors(dialect: Dialect) -> Iterator[tuple[str, str]]:
    """Each label of ours, and series that have it under the name that Prometheus gives a renamed one: few where all that have it are many,
    since a scrape renames it on every one of them."""
    information = ("target_info", "target_node_info", "gpu_up", "written_labels_info")
    few = dict.fromkeys(readable(dialect), one_of("__name__", [series(name) for name in information]))
    few |= dict.fromkeys(BY_NAME["target_info"].labels, one_of("__name__", [series("target_info")]))
    few |= {"engine": one_of("__name__", [series("requests_running")])}
    everything = one_of("__name__", [f"{PREFIX}.+"])
    labels = (name for metric in METRICS if metric.kind is not Kind.HISTOGRAM for name in metric.labels)
    for name in dict.fromkeys((*few, *labels)):
        # where a node stands is read by the review alone, under either name
        if name in NODE_LABELS and name not in few:
            continue
        yield name, f'{{{few.get(name, everything)},exported_{name}!=""}}'


def _overwritten(dialect: Dialect) -> Iterator[tuple[str, str]]:
    """Each label that rules cannot do without, and the targets of exporters whose label of that name something has written over, or taken
    away, after the scrape."""
    for name in dict.fromkeys(("namespace", "node", *dialect.own)):
        # labels of targets' own stand on that series only where one of the exporter's targets has them
        if name in IDENTITY_LABELS:
            lost = series("written_labels_info", f'{name}!="{AS_WRITTEN}",exported_{name}=""')
            yield name, f"{series('target_info')} and on ({dialect.key('job', 'instance')}) {lost}"


def _partly(dialect: Dialect) -> Iterator[tuple[str, str]]:
    """Each label that all series of a scrape should have, and the targets that have one of their own instead: on their info series alone."""
    said_by = "job, instance, target"
    for name in dialect.external:
        state = series("target_state")
        yield (name, f"{series('target_info')} unless on ({name}, {said_by}) {state} and on ({said_by}) {state}")


def _unclear(dialect: Dialect) -> Iterator[str]:
    """What is stated of a model and fits several of its fleets, or none."""
    for of, records in ((_EXPECTATION, (EXPECTED,)), (_DRILL, (SUCCEEDED, FAILED))):
        unclear = " or ".join(keep_unclear(dialect, record) for record in records)
        yield f'label_replace({unclear}, "of", "{of}", "", "")'


def _of_scrape(what: str, description: str) -> Text:
    return Text(
        f"Job {label('job')}: the label {label('label')} of our series is {what}",
        description,
        "set honor_labels: true in the scrape; the runbook has each case",
    )


def _choose_by_how(texts: Mapping[str, str]) -> str:
    """The text for the alert's label `how`, the last one for any other; without a choice where all are the same."""
    *others, (_, last) = texts.items()
    chosen = last
    for how, text in reversed(others):
        if text != chosen:
            chosen = f'{{{{ if eq $labels.how "{how}" }}}}{text}{{{{ else }}}}{chosen}{{{{ end }}}}'
    return chosen


def _unclear_text(dialect: Dialect) -> Text:
    matchers, values = alert_matchers((*dialect.external, *MODEL))
    names = ", ".join(dialect.own)
    fleets = f"printf `count by ({names}) ({KNOWN}{{{matchers}}})` {values}"
    each = ", ".join(
        f"{name} {{{{ with .Labels.{name} }}}}{{{{ . }}}}{{{{ else }}}}not known{{{{ end }}}}" for name in dialect.own
    )
    there = f'{{{{ range {fleets} | query | sortByLabel "{dialect.own[0]}" }}}}[{each}] {{{{ end }}}}'
    return Text(
        f"{of_model(dialect)}: {label('of')} does not say which replicas it means",
        f"It and the targets of this model do not have the same {names}. There are: {there}- so it counts for none of them, and a lost replica, or a "
        "drill that is due, is not noticed.",
        f"write {names} there as the targets have it; the runbook says where",
    )


def _claimed(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> tuple[str, Text]:
    expr = f"{dialect.with_own(TARGET_CLAIMS)} > 0 or {GPU_CLAIMS} > 0"
    matchers, values = alert_matchers((*dialect.external, "target"))
    nodes = f"printf `count by (node) ({NODES}{{{matchers}}})` {values}"
    clusters = f"printf `count by (cluster) ({series('target_info', matchers)})` {values}"
    places = (
        f'{{{{ if eq $labels.of "clusters" }}}}{{{{ range {clusters} | query | sortByLabel "cluster" }}}}{{{{ .Labels.cluster }}}} {{{{ end }}}}'
        f'{{{{ else }}}}{{{{ range {nodes} | query | sortByLabel "node" }}}}{{{{ .Labels.node }}}} {{{{ end }}}}{{{{ end }}}}'
    )
    of_gpu, gpu_values = alert_matchers((*dialect.external, "gpu"))
    claiming = f"printf `count by (target) ({series('gpu_target_info', of_gpu)})` {gpu_values}"
    targets = f'{{{{ range {claiming} | query | sortByLabel "target" }}}}{{{{ .Labels.target }}}} {{{{ end }}}}'
    return expr, Text(
        f"{{{{ if $labels.gpu }}}}GPU {label('gpu')} is claimed by {value()} targets"
        f"{{{{ else }}}}{label('target')}: one name on several {label('of')}{{{{ end }}}}",
        f"{{{{ if $labels.gpu }}}}Their shares add up to more than all of it, or are not all known: {targets}- its time and its cost count for each of them, "
        "or for none where one exporter sees it."
        f"{{{{ else }}}}Exporters that do not agree say that it is on: {places}- so two servers count as one, and whatever is said of it is a "
        "mixture.{{ end }}",
        "find out what there really is; the runbook has the usual causes",
    )


IDENTITY = (
    Alert(
        "LabelsRenamed", Check.EXPORTER, ("label", "how", "job"), {Severity.WARNING: ""}, _renamed, Shown("exporter")
    ),
    Alert("ClaimedTwice", Check.EXPORTER, ("target", "of", "gpu"), {Severity.WARNING: ""}, _claimed, Shown("exporter")),
)


# --- Check exporter, signals: what a workload's replicas had, and some of them lack now.

# Half of the moments of this window: a pod that has just started lacks some for a moment, and a rollout starts one after the other; an
# exporter that has just started says nothing for a while. What was repaired is over after half of it.
_WINDOW_SECONDS = 10 * MINUTE
_MOMENTS = round(_WINDOW_SECONDS / INTERVAL_SECONDS / 2)


def _find_lost(dialect: Dialect, matchers: str) -> str:
    return dialect.apply_over_time("max_over_time", f"{LOST}{{{matchers}}}", _WINDOW_SECONDS)


def _signal_lost(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> tuple[str, Text]:
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
    expr = unless_retired(dialect, settings, wanted, lambda entry: _find_lost(dialect, entry), *WORKLOAD)
    matchers, values = alert_matchers(tuple(dict.fromkeys((*dialect.identity, *WORKLOAD))))
    versions = f"printf `count by (version) ({_find_lost(dialect, matchers)})` {values} | query"
    of_version = f"printf `{_find_lost(dialect, f'{matchers},version=%q')}` {values} .Labels.version | query"
    one = "{{ .Labels.signal }} ({{ .Labels.reason }}) on {{ .Value | humanize }}"
    some = say_each(of_version, "signal", one)
    which = "{{ with .Labels.version }}version {{ . }}{{ else }}a version that is not known{{ end }}"
    said = f'{{{{ range {versions} | sortByLabel "version" }}}}{which} lacks {some}; {{{{ end }}}}'
    workload = "{{ with $labels.workload }}, workload {{ . }}{{ end }}"
    return expr, Text(
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
        Shown("exporter", "Missing signals"),
    ),
)
