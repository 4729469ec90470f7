"""Which workload each target belongs to, how many of its replicas answer, and how many are wanted.

A workload is what lasts while pods come and go: the same model, role, runtime and workload of the same fleet. Hosts without Kubernetes
have no workload; there it is the model, role and runtime.
"""

from __future__ import annotations

from llm_serving_alerts.external import KUBE_REPLICAS
from llm_serving_alerts.promql import MINUTE, TARGETS, WORKLOAD, Dialect, clauses, series
from llm_serving_alerts.rules import Group, Record
from llm_serving_alerts.settings import Settings
from llm_serving_exporter.clients.stored_labels import take_exported

WORKLOADS = "target:llm_serving_workload:info"
ANSWERING = "workload:llm_serving_answering_replicas:count"
WANTED = "workload:llm_serving_wanted_replicas:sum"
# the version of the exporter that reads it: what another version can read may be more or less
READER = "reader"
# what lasts is looked at once a minute
INTERVAL_SECONDS = MINUTE
_BELONGS = ("workload", "workload_kind", "namespace")


def workloads(dialect: Dialect, settings: Settings) -> Group:
    """Targets that answer with their workload, and workloads with their replicas."""
    by_workload = dialect.labels(*WORKLOAD)
    return Group(
        "llm-serving.workloads",
        (
            Record(
                WORKLOADS,
                _info(dialect),
                "1 for a target that is ready, 0 for one whose answer nobody can read, with its workload; reader: the exporter's version",
            ),
            Record(ANSWERING, f"count by ({by_workload}) ({WORKLOADS})", "replicas of a workload that answer"),
            Record(
                WANTED,
                f"sum by ({by_workload}) ({_wanted(dialect)})",
                "pods that kube-state-metrics says are wanted of a workload that has replicas",
            ),
        ),
        INTERVAL_SECONDS / dialect.time_scale,
    )


# what is known of a target, from the most to the least
_KNOWN_BEST = ('model_name!="",version!=""', 'model_name!=""', "")


def _info(dialect: Dialect) -> str:
    of_target, of_exporter = dialect.key("target"), dialect.key("instance", "job")
    build = take_exported(series("exporter_build_info"), "version")
    version = f'label_replace({build}, "{READER}", "$1", "version", "(.+)")'
    reader = f"topk by ({of_exporter}) (1, max by ({dialect.key('instance', 'job', READER)}) ({version}))"
    labels = dialect.key("target", "runtime", "version", "model_name", "role", READER)
    # of several exporters one that has read it, and knows the most; without the exporter's own series nobody knows who reads
    known = f" or on ({of_target}) ".join(
        f"({info} * on ({of_exporter}) group_left ({READER}) ({reader}) or on ({of_exporter}, target) {info})"
        for info in (series("target_info", matchers) for matchers in _KNOWN_BEST)
    )
    one = f"topk by ({of_target}) (1, max by ({labels}) ({known}))"
    placed = ", ".join(dict.fromkeys((*dialect.own, *_BELONGS)))
    return clauses(
        ("what it is, and who reads it", f"({one})"),
        ("what it belongs to", f"* on ({of_target}) group_left ({placed}) {TARGETS}"),
        ("whether it answers", f"* on ({of_target}) group_left () ({_answers(dialect)})"),
    )


def _answers(dialect: Dialect) -> str:
    """1 for a target that somebody reads, 0 for one that answers and that nobody can read any more."""
    of_target = dialect.key("target")
    ready, unknown = (dialect.bare(series("target_state", state=state), "target") for state in ("ready", "unknown"))
    read_before = series("signal_available", reason="target_down")
    return f"{ready} == 1 or on ({of_target}) ({unknown} == 1) * 0 and on ({of_target}) {read_before}"


def _wanted(dialect: Dialect) -> str:
    """Of each kind that kube-state-metrics has in its default configuration, by namespace and name; one that is scraped without
    `honor_labels` has the namespace as exported_namespace."""
    of_object = dialect.key("namespace", "workload")
    found = []
    for kind, (wanted, name) in KUBE_REPLICAS.items():
        named = f'label_replace({take_exported(wanted.name, "namespace")}, "workload", "$1", "{name}", "(.+)")'
        ours = f'max by ({dialect.labels(*WORKLOAD, "workload_kind", "namespace")}) ({WORKLOADS}{{workload_kind="{kind}"}})'
        found.append(f"{ours} * 0 + on ({of_object}) group_left () max by ({of_object}) ({named})")
    return " or ".join(found)
