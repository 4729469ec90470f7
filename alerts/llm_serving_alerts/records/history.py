"""Which targets are one replica, and what was there: models, replicas, nodes and exporters."""

from __future__ import annotations

from collections.abc import Iterator

from llm_serving_alerts.external import KUBE_REPLICAS, NODE_CONDITION, POD_OWNER, UP
from llm_serving_alerts.promql import (
    DAY,
    HOUR,
    MINUTE,
    MODEL,
    NODES,
    REPLICA,
    TARGET,
    TARGETS,
    Dialect,
    clauses,
    series,
)
from llm_serving_alerts.rules import Group, Record, write_records
from llm_serving_alerts.settings import Settings
from llm_serving_exporter.clients.stored_labels import take_exported

# --- Which targets are one replica: ranks with pages of their own that share one set of experts (wide expert parallelism).
#
# Such a replica serves only whole: while a rank is missing, none of it does. Every other target is a replica by itself.

REPLICAS = "target:llm_serving_replica:info"
WHOLE = "replica:llm_serving_ready:min"
LACKING = "replica:llm_serving_lacking_ranks:sum"
REPLICA_NODES = "replica:llm_serving_node:info"
_OWN = "target:llm_serving_own_ready:max"
_RANKS = "replica:llm_serving_ranks:max"
_SHOWN = "replica:llm_serving_shown_ranks:sum"
_NAMED = 'replica_name!=""'


def of_replica(dialect: Dialect, by_target: str) -> str:
    """Series by target with their replica as a label."""
    return f"{by_target} * on ({dialect.key('target')}) group_left (replica_name) {REPLICAS}"


def join_ranks(dialect: Dialect, replicas: str, ready: str) -> Iterator[Record]:
    """Replicas with their ranks. `replicas`: every target that is no front end; `ready`: 1 or 0 by target."""
    of_target, by_replica = dialect.key("target"), dialect.labels(*REPLICA)

    def ranks(of: str) -> str:
        each = dialect.bare(series("target_replica_ranks", _NAMED, of=of), "target", "replica_name")
        return f"({_OWN} * 0 + on ({of_target}) group_left (replica_name) {each})"

    whole = f"{ranks('target')} unless on ({by_replica}) {_SHOWN} > {_RANKS}"
    one = f"topk by ({of_target}) (1, max by ({dialect.key('target', 'replica_name')}) ({whole})) > bool 0"
    itself = dialect.bare(series("target_info"), "target")
    parts = clauses(
        ("ranks that share experts, unless one name stands for more than a replica has", f"({one})"),
        (
            "or the target by itself",
            f'or on ({of_target}) label_replace({itself}, "replica_name", "$1", "target", "(.+)")',
        ),
    )
    before = dialect.apply_over_time("max_over_time", _SHOWN, HOUR)
    own = of_replica(dialect, _OWN)
    yield from write_records(f"""
        ## 1 for a target that is ready, 0 for another; front ends left out
        {_OWN} = {replicas} * on ({of_target}) group_left () {ready}
        ## ranks that a replica of several targets has
        {_RANKS} = max by ({by_replica}) {ranks("replica")}
        ## those of them that are on the pages of its targets
        {_SHOWN} = sum by ({by_replica}) {ranks("target")}
        ## 1 for each target, with the replica that it is a part of
        {REPLICAS} = {dialect.with_own(parts)}
        ## ranks of a replica that have gone, where some have
        {LACKING} =
          # ranks that were there within the hour, and are not
          {before} - {_SHOWN} > 0
          # of a replica that has not all of them
          and on ({by_replica}) {_SHOWN} < {_RANKS}
        ## 1 for a replica all of whose ranks serve, 0 for another
        {WHOLE} = min by ({by_replica}) ({own}) unless on ({by_replica}) {LACKING} or on ({by_replica}) {LACKING} * 0
        ## 1 for a replica that serves, 0 for one that does not; of ranks that share experts, whether all of them do
        target:llm_serving_ready:max = max by ({dialect.labels("target", "model_name", "role")})
          ({of_replica(dialect, f"({_OWN} * 0 + 1)")} * on ({by_replica}) group_left () {WHOLE})
        ## 1 for each node that a replica spans
        {REPLICA_NODES} = max by ({dialect.labels(*REPLICA, "node")}) ({of_replica(dialect, NODES)})
    """)


# --- What was there: models, replicas, nodes and exporters, written down every five minutes and looked back at.
#
# What lasts is kept by model, node and exporter, never by a value that was read back from itself: a memory ends at its horizon.

# moments of the history, and how often it is looked back at
MOMENT_SECONDS, LOOK_SECONDS = 5 * MINUTE, 2 * MINUTE
SEEN_TARGETS = "target:llm_serving_up:seen"
EXPORTERS = "exporter:llm_serving_exporter:info"
SEEN_EXPORTERS = "exporter:llm_serving_exporter:seen"
# exporters that stand on the node of their engines
EACH_NODE = 'mode="node",node!=""'
ALIVE = "model:llm_serving_alive_targets:sum"
# what is looked back at
HAD = "model:llm_serving_alive_targets:last"
MOST = "model:llm_serving_alive_targets:most"
SERVED = "model:llm_serving_served_last_hour:bool"
UNWANTED = "model:llm_serving_unwanted:bool"
STATED = "model:llm_serving_expected_replicas:last1d"
ON_NODE = "model_node:llm_serving_ready_replicas:last"
NODE_SERVED = "node:llm_serving_served:time"
NODE_READY = "node:llm_serving_kube_ready:time"
NODE_ANSWERED = "node:llm_serving_exporter_answered:time"
_ALIVE_SEEN = "model:llm_serving_alive_targets:seen"
_TOKENS = "model:llm_serving_phase_tokens:max1h"
_STATED_SEEN = "exporter:llm_serving_expected_replicas:seen"
_REPLICAS, _SERVING = "model_node:llm_serving_ready_replicas:count", "model_node:llm_serving_served:time"
_KUBE_READY, _ANSWERED = "node:llm_serving_kube_ready:seen", "node:llm_serving_exporter_answered:seen"
_WORKLOADS = "model:llm_serving_workload:seen"
_KUBE_REPLICAS = "kube:llm_serving_wanted_replicas:max"
# two moments of the history, and the time until the next
_TOGETHER_SECONDS = 2 * MOMENT_SECONDS
_PLACE = ("namespace", "workload", "workload_kind")
# kind -> the kind of what controls its pods, and names of that and of pods, of which the first group is its own: of a Deployment
# "NAME-HASH" and "NAME-HASH-abcde", https://kubernetes.io/docs/concepts/workloads/controllers/deployment/. A pod's name is cut to fit
_MADE = {
    "Deployment": ("ReplicaSet", "(.+)-[0-9a-z]+", "(.+)-[0-9a-z]+-[0-9a-z]{5}"),
    "ReplicaSet": ("ReplicaSet", "(.+)", "(.+-[0-9a-z]+)-[0-9a-z]{5}"),
    "StatefulSet": ("StatefulSet", "(.+)", "(.+)-[0-9]+"),
}
# workloads that come to an end without anybody's doing
_ENDING = "Job|Workflow|TaskRun"
_WANTED = tuple(wanted for wanted, _ in KUBE_REPLICAS.values())


def seen(dialect: Dialect, settings: Settings) -> tuple[Group, ...]:
    """What exporters say at each moment, and what one that is gone has said. Before the records of targets, which rest on it."""
    return (
        Group("llm-serving.seen", tuple(_scraped(dialect)), MOMENT_SECONDS),
        Group("llm-serving.said", tuple(_said(dialect)), LOOK_SECONDS),
    )


def history(dialect: Dialect, settings: Settings) -> tuple[Group, ...]:
    """Models and nodes at each moment, and what is made of these."""
    return (
        Group("llm-serving.history", tuple(_moments(dialect)), MOMENT_SECONDS),
        Group("llm-serving.memory", tuple(_memory(dialect, settings)), LOOK_SECONDS),
    )


def _scraped(dialect: Dialect) -> Iterator[Record]:
    of_target = dialect.key("target")
    named = dialect.one(series("target_info", 'model_name!=""'), *TARGET)
    up = dialect.bare(series("target_up"), "target")
    stated = dialect.stated(series("expected_replicas"))
    yield from write_records(f"""
        ## whether a target with its model answers, at a moment
        {SEEN_TARGETS} = {named} * on ({of_target}) group_left () {up}
        ## 1 for each exporter that is scraped, at a moment
        {SEEN_EXPORTERS} = {EXPORTERS}
        ## when the exporter of a node was last scraped, at a moment
        {_ANSWERED} = max by ({dialect.key("node")}) ({EXPORTERS}{{{EACH_NODE}}}) * 0 + time()
        ## expected replicas by who states them, at a moment
        {_STATED_SEEN} = max by ({dialect.labels(*MODEL, "job", "instance")}) ({stated})
    """)


def _said(dialect: Dialect) -> Iterator[Record]:
    of_exporter, by_both = dialect.key("job", "instance"), dialect.labels(*MODEL, "job", "instance")
    # one that is there and says nothing any more has taken it back
    before = f"{dialect.apply_over_time('last_over_time', _STATED_SEEN, DAY)} unless on ({of_exporter}) {EXPORTERS}"
    yield from write_records(f"""
        ## expected replicas as an exporter stated them that is gone since, within a day
        {STATED} = max by ({dialect.labels(*MODEL)}) ({before} unless on ({by_both}) ({_replaced(dialect, before)}))
    """)


def _replaced(dialect: Dialect, stated: str) -> str:
    """What has been taken back with another exporter in the place of the one that stated it, under a new address: one of the same job, mode
    and node, which shows the model too. One that is still asked has gone, and nobody has taken its place."""
    of_exporter, of_place = dialect.key("job", "instance"), dialect.key(*MODEL, "job", "mode", "node")
    known = f"topk by ({of_exporter}) (1, {dialect.apply_over_time('last_over_time', SEEN_EXPORTERS, DAY)})"
    shown = f"max by ({dialect.key(*MODEL, 'job', 'instance')}) ({series('target_info')})"
    placed, now = (
        f"({who}) * on ({of_exporter}) group_left (mode, node) {exporters}"
        for who, exporters in ((stated, known), (shown, f'{EXPORTERS}{{mode!=""}}'))
    )
    return f"{placed} unless on ({of_exporter}) {UP} and on ({of_place}) {now}"


def _moments(dialect: Dialect) -> Iterator[Record]:
    by_model = dialect.labels(*MODEL)
    # only while they are there: what a model did in its last hour is not forgotten in the hour after
    tokens = dialect.apply_over_time("max_over_time", "model:llm_serving_phase_tokens:rate5m", HOUR)
    on_node = f"count by ({dialect.labels(*MODEL, 'node')}) ({REPLICA_NODES} and on ({dialect.labels(*REPLICA)}) {WHOLE} == 1)"
    ours = dialect.apply_over_time("last_over_time", _SERVING, DAY)
    ready = f"max by ({dialect.key('node')}) ({_condition()} == 1)"
    yield from write_records(f"""
        ## targets of a model that are not down, at a moment
        {_ALIVE_SEEN} = {ALIVE} > 0
        ## most tokens/s of a phase within an hour, at a moment
        {_TOKENS} = max by ({by_model}) ({tokens}) and on ({by_model}) {ALIVE} > 0
        ## ready replicas of a model that touch a node, at a moment
        {_REPLICAS} = {on_node}
        ## when a node was last seen to have ready replicas of a model, at a moment
        {_SERVING} = {_REPLICAS} * 0 + time()
        ## when Kubernetes last called a node of ours ready, at a moment
        {_KUBE_READY} = {ready} * 0 + time() and on ({dialect.key("node")}) {ours}
        ## the workloads of a model, at a moment: those that kube-state-metrics knows, where it knows what the pods are of
        {_WORKLOADS} = max by ({", ".join(dict.fromkeys((*dialect.identity_of(MODEL), *MODEL, *_PLACE)))}) ({_placed(dialect)}) >= bool 0
    """)


def _placed(dialect: Dialect) -> str:
    """Targets with their workloads. What owns a pod may be nothing that kube-state-metrics tells of (an InferenceService, a Rollout, a
    LeaderWorkerSet) while what that makes is: the Deployment, ReplicaSet or StatefulSet that its controller's name begins with, which
    kube-state-metrics says, or the pod's own."""
    of_target, of_name, of_pod = dialect.key("target"), dialect.key("namespace", "workload"), ("namespace", "pod")
    added = f"target:llm_serving_ready:max * on ({of_target}) group_left ({', '.join(_PLACE)})"
    others = f'workload_kind!~"{"|".join(KUBE_REPLICAS)}"'

    def lately(selector: str) -> str:
        # what is removed is gone for kube-state-metrics some seconds before the last of its targets
        return dialect.apply_over_time("last_over_time", selector, _TOGETHER_SECONDS)

    placed = []
    for kind, (controller, of_controller, of_its_pod) in _MADE.items():
        wanted, name = KUBE_REPLICAS[kind]
        owners = take_exported(lately(f'{POD_OWNER}{{owner_kind="{controller}"}}'), *of_pod)
        owned = f"max by ({dialect.key(*of_pod, 'owner_name')}) ({owners})"
        pods = f"{TARGETS}{{{others}}} * on ({dialect.key(*of_pod)}) group_left (owner_name) {owned}"
        there = f'label_replace({take_exported(lately(wanted), "namespace")}, "workload", "$1", "{name}", "(.+)")'
        for shown, label, begins in (
            (pods, "owner_name", of_controller),
            (f'{TARGETS}{{{others},pod=~"{of_its_pod}"}}', "pod", of_its_pod),
        ):
            named = f'label_replace(label_replace({shown}, "workload", "$1", "{label}", "{begins}"), "workload_kind", "{kind}", "", "")'
            placed.append(f"{added} ({named} and on ({of_name}) {there})")
    return f" or on ({of_target}) ".join((*placed, f"{added} {TARGETS}"))


def _condition() -> str:
    return take_exported(f'{NODE_CONDITION}{{condition="Ready",status="true"}}', "node")


def not_ready(dialect: Dialect) -> str:
    """Nodes that Kubernetes calls not ready, or does not hear of; 0 each."""
    return f"max by ({dialect.key('node')}) ({_condition()}) == 0"


def _memory(dialect: Dialect, settings: Settings) -> Iterator[Record]:
    by_model, of_node = dialect.labels(*MODEL), dialect.key("node")
    by_both = dialect.labels(*MODEL, "node")

    def last(record: str, seconds: float = settings.memory_seconds, function: str = "last_over_time") -> str:
        return dialect.apply_over_time(function, record, seconds)

    # what an autoscaler needed last week is not missed today
    of_day, of_all = (last(_ALIVE_SEEN, seconds, "max_over_time") for seconds in (DAY, settings.memory_seconds))
    serving = f"max by ({of_node}) ({last(_SERVING)})"
    together = dialect.length(_TOGETHER_SECONDS)
    yield from write_records(f"""
        ## targets of a model that were not down when some last were
        {HAD} = {last(_ALIVE_SEEN)}
        ## targets of a model that were not down at most, in the last day in which it was there
        {MOST} = {of_day} or on ({by_model}) {of_all}
        ## 1 for a model that worked in the last hour in which it was there
        {SERVED} = {last(_TOKENS)} > bool 0
        ## replicas that kube-state-metrics says are wanted of a workload of ours, there or gone
        {_KUBE_REPLICAS} = {_kube_replicas(dialect, settings)}
        ## 1 for a model of whose workloads kube-state-metrics knows none that wants replicas, or that are Jobs
        {UNWANTED} = {_unwanted(dialect, settings)}
        ## when a node was last seen to have ready replicas
        {NODE_SERVED} = {serving}
    """)
    yield Record(
        ON_NODE,
        # what had left the node before is not on it
        f"{last(_REPLICAS)} and on ({by_both}) {last(_SERVING)} >= on ({of_node}) group_left () ({serving} - {together})",
        "ready replicas of a model on a node when it last had some",
    )
    yield Record(NODE_READY, last(_KUBE_READY), "when Kubernetes last called a node of ours ready")
    yield Record(NODE_ANSWERED, last(_ANSWERED), "when the exporter of a node was last scraped")


def _unwanted(dialect: Dialect, settings: Settings) -> str:
    """Of models whose workloads kube-state-metrics spoke of, and is still there: gone, or to have no replica. Of models of Jobs too,
    whoever is there: a Job that is gone is done, and one that failed is its controller's to tell."""
    by_model, of_object = dialect.labels(*MODEL), dialect.key(*_PLACE)
    ours, spoken = (
        dialect.apply_over_time("last_over_time", name, settings.memory_seconds)
        for name in (_WORKLOADS, _KUBE_REPLICAS)
    )
    lately = dialect.apply_over_time("last_over_time", _WORKLOADS, DAY)
    # the workload may have been the only one that was: nodes are there always
    there = " or ".join(f"group by ({dialect.key()}) ({name})" for name in (NODE_CONDITION, *_WANTED))
    jobs, others = (
        dialect.apply_over_time("last_over_time", f'{_WORKLOADS}{{workload_kind{sign}"{_ENDING}"}}', seconds)
        for sign, seconds in (("=~", settings.memory_seconds), ("!~", DAY))
    )
    told = clauses(
        (
            "models of which kube-state-metrics spoke, and it is there",
            f"max by ({by_model}) ({ours} and on ({of_object}) {spoken} and on ({dialect.key()}) ({there}))",
        ),
        ("one that is wanted", f"unless on ({by_model}) ({ours} and on ({of_object}) {_KUBE_REPLICAS} > 0)"),
        ("of another workload it did not speak", f"unless on ({by_model}) ({lately} unless on ({of_object}) {spoken})"),
    )
    return f"""({told}
) or on ({by_model}) max by ({by_model}) ({jobs} unless on ({by_model}) {others})"""


def _kube_replicas(dialect: Dialect, settings: Settings) -> str:
    """Of the workloads that are remembered, how many replicas are wanted."""
    ours = dialect.apply_over_time("last_over_time", _WORKLOADS, settings.memory_seconds)
    wanted_by_kind = []
    for kind, (wanted, name) in KUBE_REPLICAS.items():
        named = f'label_replace({take_exported(wanted, "namespace")}, "workload", "$1", "{name}", "(.+)")'
        of_kind = f"max by ({dialect.key('namespace', 'workload')}) ({named})"
        wanted_by_kind.append(
            f'label_replace({of_kind}, "workload_kind", "{kind}", "", "") and on ({dialect.key(*_PLACE)}) {ours}'
        )
    return " or ".join(wanted_by_kind)
