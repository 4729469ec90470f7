"""Check exporter, who is who: labels of ours that a scrape has renamed, and names that are claimed twice."""

from __future__ import annotations

from collections.abc import Iterator

from llm_serving_alerts.declare import Alert, Text, alert_matchers, label, value
from llm_serving_alerts.promql import NODES, TARGETS, Dialect, one_of, series
from llm_serving_alerts.records.identity import BELONGS, GPU_CLAIMS, TARGET_CLAIMS
from llm_serving_alerts.rules import Check, Severity
from llm_serving_alerts.settings import AlertSettings, Settings
from llm_serving_exporter.catalogue import BY_NAME, METRICS
from llm_serving_exporter.catalogue.spec import PLACE_LABELS, PREFIX, Kind

_RENAMED, _OVERWRITTEN = "renamed", "overwritten"
# namespace/pod:port, as the exporter names the target of a pod
_POD = "([^/]+)/([^/]+):[0-9]+"


def _renamed(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> str:
    by_job = dialect.key("job")
    found = [
        f'label_replace(count by ({by_job}) ({selector}), "label", "{name}", "", "")'
        for name, selector in _selectors(dialect)
        if name not in settings.renamed_labels
    ]
    how = f'label_replace({" or ".join(found)}, "how", "{_RENAMED}", "", "")'
    return how if "namespace" in settings.renamed_labels else f"{how} or {_overwritten(dialect)}"


def _selectors(dialect: Dialect) -> Iterator[tuple[str, str]]:
    """Each label of ours, and series that have it under the name that Prometheus gives a renamed one: few where all that have it are many,
    since a scrape renames it on every one of them."""
    information = ("target_info", "target_node_info", "gpu_up")
    few = dict.fromkeys(
        (*PLACE_LABELS, *BELONGS, *dialect.own), one_of("__name__", [series(name) for name in information])
    )
    few |= dict.fromkeys(BY_NAME["target_info"].labels, one_of("__name__", [series("target_info")]))
    few |= {"engine": one_of("__name__", [series("requests_running")])}
    everything = one_of("__name__", [f"{PREFIX}.+"])
    labels = (name for metric in METRICS if metric.kind is not Kind.HISTOGRAM for name in metric.labels)
    for name in dict.fromkeys((*few, *labels)):
        yield name, f'{{{few.get(name, everything)},exported_{name}!=""}}'


def _overwritten(dialect: Dialect) -> str:
    """A pod's target says its namespace in its name: where another one stands beside it, somebody wrote that after the scrape."""
    of_target = dialect.key("target")
    pods = f'label_replace({TARGETS}, "pod", "$2", "target", "{_POD}")'
    named = f'label_replace({TARGETS}, "namespace", "$1", "target", "{_POD}")'
    found = f'{TARGETS}{{target=~"{_POD}"}} and on ({of_target}, pod) {pods} unless on ({of_target}, namespace) {named}'
    counted = f"count by ({dialect.key()}) ({found})" if dialect.external else f"count({found})"
    return f'label_replace(label_replace({counted}, "label", "namespace", "", ""), "how", "{_OVERWRITTEN}", "", "")'


def _renamed_text(dialect: Dialect, settings: Settings, own: AlertSettings) -> Text:
    name = label("label")
    read = ", ".join(dict.fromkeys((*PLACE_LABELS, *BELONGS, *dialect.own)))
    return Text(
        f'{{{{ if eq $labels.how "{_OVERWRITTEN}" }}}}The label {name} of {value()} targets is not theirs'
        f"{{{{ else }}}}Job {label('job')}: the label {name} of our series is stored as exported_{name}{{{{ end }}}}",
        f'{{{{ if eq $labels.how "{_OVERWRITTEN}" }}}}Their names say another namespace: something after the scrape wrote its own there, such as '
        "enforcedNamespaceLabel. Fleets of several namespaces look like one."
        f"{{{{ else }}}}The scrape puts a {name} of its own in its place, on {value()} of the series that were looked at. Rules read {read} "
        "under either name; what goes by any other label is wrong until that one has its name back.{{ end }}",
        "set honor_labels: true in the scrape; the runbook has each case",
    )


def _claimed(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> str:
    return f"{dialect.with_own(TARGET_CLAIMS)} > 0 or {GPU_CLAIMS} > 0"


def _claimed_text(dialect: Dialect, settings: Settings, own: AlertSettings) -> Text:
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
    return Text(
        f"{{{{ if $labels.gpu }}}}GPU {label('gpu')} is claimed by {value()} targets"
        f"{{{{ else }}}}{label('target')}: one name on several {label('of')}{{{{ end }}}}",
        f"{{{{ if $labels.gpu }}}}Their shares add up to more than all of it, or are not all known: {targets}- its time and its cost count for each of them, "
        "or for none where one exporter sees it."
        f"{{{{ else }}}}Exporters that do not agree say that it is on: {places}- so two servers count as one, and whatever is said of it is a "
        "mixture.{{ end }}",
        "find out what there really is; the runbook has the usual causes",
    )


def _unread(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> str:
    return f"{dialect.bare(series('exporter_shard_held'), 'shard')} == 0"


def _unread_text(dialect: Dialect, settings: Settings, own: AlertSettings) -> Text:
    where = "".join(f"{label(name)} " for name in dialect.external)
    return Text(
        f"{where}shard {label('shard')}: no exporter reads it",
        "The other exporters know of it, and none of them has its targets: nothing is seen of those, and no alert about them can fire.",
        "bring the exporter of this shard back; until then watch its servers by hand",
    )


IDENTITY = (
    Alert("LabelsRenamed", Check.EXPORTER, ("label", "how", "job"), {Severity.WARNING: ""}, _renamed, _renamed_text),
    Alert("ClaimedTwice", Check.EXPORTER, ("target", "of", "gpu"), {Severity.WARNING: ""}, _claimed, _claimed_text),
    Alert("ShardMissing", Check.EXPORTER, ("shard",), {Severity.WARNING: ""}, _unread, _unread_text),
)
