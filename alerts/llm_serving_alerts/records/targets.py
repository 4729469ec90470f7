"""Who is there: targets, ready replicas, wanted ones, nodes, GPUs, and which of them have settled."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from llm_serving_alerts.external import wanted_replicas
from llm_serving_alerts.promql import DAY, MODEL, NODES, REPLICA, TARGET, Dialect, series
from llm_serving_alerts.records.history import ALIVE, SEEN_TARGETS, STATED, WHOLE, join_ranks, of_replica
from llm_serving_alerts.rules import Group, Record, write_records
from llm_serving_alerts.settings import STATED_BY_WORKLOAD, Settings, Workload

# --- What is stated of a model's replicas (how many are expected, what their drills came to): which fleet it is about.
#
# It is stated for a model and role, with labels that tell fleets apart. Where one of `identity_labels` is left out there, or on the
# targets, the two do not meet by their labels, and a fleet that is well would look as if all of it were lost.

KNOWN = "model:llm_serving_targets:count"
EXPECTED = "model:llm_serving_expected_replicas:max"
SUCCEEDED = "model:llm_serving_drill_success_timestamp_seconds:max"
FAILED = "model:llm_serving_drill_failed:max"
# before the name of a label of which all fleets of a model have the same
_ONLY = "only_"


def stated(dialect: Dialect) -> Iterator[Record]:
    """Whatever is stated of a model, with the labels of the fleet that is meant; none where only labels of the scrape tell fleets apart."""
    if dialect.own:
        for record, expression, about in (
            (EXPECTED, dialect.stated(series("expected_replicas")), "replicas that expected_replicas states"),
            (
                SUCCEEDED,
                dialect.stated(series("drill_last_success_timestamp_seconds")),
                "when a drill last passed, as a Unix time",
            ),
            (FAILED, failed_drills(dialect), "1 where the last drill failed"),
        ):
            yield Record(record, _place(dialect, expression), f"{about}, of the fleet that it is about")


def failed_drills(dialect: Dialect) -> str:
    """1 for each model whose last drill failed, by exporter."""
    by_model, by_exporter = dialect.labels(*MODEL), dialect.labels(*MODEL, "instance")
    run = dialect.stated(series("drill_last_run_timestamp_seconds"))
    # of two exporters with a file of results each, the one that knows of the later drill
    last = f"{run} == on ({by_model}) group_left () max by ({by_model}) ({run})"
    return f"{dialect.stated(series('drill_last_verdict', verdict='failed'))} == 1 and on ({by_exporter}) ({last})"


def _place(dialect: Dialect, expression: str) -> str:
    """A label that is not stated is that of the fleets of this model and role where all of them have the same; else it stays out."""
    by_model, of_all = dialect.labels(*MODEL), dialect.key(*MODEL)
    written = f"max by ({by_model}) ({expression})"
    filled = written
    for name in dialect.own:
        values = f"max by ({dialect.key(*MODEL, name)}) ({KNOWN})"
        only = f"({values} and on ({of_all}) count by ({of_all}) ({values}) == 1)"
        either = f'label_replace({only}, "{_ONLY}{name}", "$1", "{name}", "(.*)") or on ({of_all}) {KNOWN}'
        one = f"max by ({dialect.key(*MODEL, _ONLY + name)}) (({either}) > bool 0)"
        # what is stated stays
        joined = f"{filled} * on ({of_all}) group_left ({_ONLY}{name}) {one}"
        filled = f'label_replace({joined}, "{_ONLY}{name}", "$1", "{name}", "(.+)")'
    # two that come to mean the same fleet are one
    filled = f"max by ({dialect.key(*MODEL, *(_ONLY + name for name in dialect.own))}) ({filled})"
    for name in dialect.own:
        filled = f'label_replace({filled}, "{name}", "$1", "{_ONLY}{name}", "(.*)")'
    exact = f"{written} and on ({by_model}) {KNOWN}"
    gone = f"{written} unless on ({of_all}) {KNOWN}"
    return f"{exact} or on ({by_model}) max by ({by_model}) ({filled}) or on ({by_model}) {gone}"


def keep_clear(dialect: Dialect, record: str) -> str:
    """What is stated of a fleet that is there, or of one that none of those that are there can be. What may be about one of them, and does
    not say so, counts for none."""
    by_model, of_all = dialect.labels(*MODEL), dialect.key(*MODEL)
    clear = [f"{record} and on ({by_model}) {KNOWN}", f"{record} unless on ({of_all}) {KNOWN}"]
    for name in dialect.own:
        # all fleets that are there have this label, and none of them this value of it
        other = f'{record}{{{name}!=""}} unless on ({dialect.key(*MODEL, name)}) {KNOWN}'
        clear.append(f'{other} unless on ({of_all}) {KNOWN}{{{name}=""}}')
    return f"({' or '.join(clear)})"


def keep_unclear(dialect: Dialect, record: str) -> str:
    """The rest of it."""
    return f"{record} unless on ({dialect.labels(*MODEL)}) {keep_clear(dialect, record)}"


SETTLED = "target:llm_serving_settled:max"
KIND = "target:llm_serving_kind:max"
DOWN = "target:llm_serving_down:min"
DESIRED = "model:llm_serving_desired_replicas:max"
WANTED_NOW = "model:llm_serving_desired_replicas:now"


def parts(dialect: Dialect, settings: Settings) -> Group:
    """Replicas and the targets that they consist of. Before the records of targets, which rest on it."""
    ready = dialect.bare(series("target_state", state="ready"), "target")
    return Group("llm-serving.targets.replicas", tuple(join_ranks(dialect, list_replicas(dialect), ready)))


def targets(dialect: Dialect, settings: Settings) -> Group:
    """A target is a replica unless it is a front end: that has no batch and no GPU, and its workers count for themselves."""
    by_target, by_model, by_replica = dialect.labels(*TARGET), dialect.labels(*MODEL), dialect.labels(*REPLICA)
    of_target = dialect.key("target")
    replicas = list_replicas(dialect)
    started = dialect.bare(series("target_start_time_seconds"), "target")
    # two exporters of a pair may know the GPUs by different names: one of them is enough
    gpus = f"topk by ({of_target}) (1, {dialect.bare(series('target_gpus'), 'target', 'gpu_name')})"
    desired = [_desired(dialect, *of_model) for of_model in group_workloads(dialect, settings.node_loss.workloads)]
    desired.append(keep_clear(dialect, EXPECTED) if dialect.own else dialect.one(series("expected_replicas"), *MODEL))
    remembered = keep_clear(dialect, STATED) if dialect.own else STATED
    return Group(
        "llm-serving.targets",
        (
            Record(
                DOWN,
                # an exporter that cannot reach a server which another reads says nothing about it
                f"{known(dialect)} * on ({of_target}) group_left () min by ({of_target}) ({series('target_state', state='down')})",
                "1 for a target that every exporter of it says is down, 0 for another; front ends included",
            ),
            *write_records(f"""
                ## replicas of a model no target of which is down, front ends included
                {ALIVE} = sum by ({by_model}) (1 - max by ({by_replica}) ({of_replica(dialect, DOWN)}))
                ## 1 for a ready replica that started long enough ago to be measured
                {SETTLED} = target:llm_serving_ready:max == 1 and on ({of_target})
                  {dialect.age(started)} > {dialect.length(settings.baseline.settle_seconds)}
                ## GPUs of a replica, with their kind
                target:llm_serving_gpus:max = {replicas} * on ({of_target}) group_left (gpu_name) {gpus}
                ## 1 for each replica with the kind of its GPUs, no gpu_name where that is not known
                {KIND} = (target:llm_serving_gpus:max > bool 0) or on ({by_target}) (target:llm_serving_ready:max * 0 + 1)
                ## replicas that some exporter knows, in whatever state
                {KNOWN} = count by ({by_model}) (count by ({by_replica}) ({of_replica(dialect, replicas)}))
                ## replicas that serve
                model:llm_serving_ready_replicas:sum = sum by ({by_model}) ({WHOLE})
            """),
            *stated(dialect),
            *write_records(f"""
                ## replicas that are wanted: kube-state-metrics where it is configured, else expected_replicas
                {WANTED_NOW} = {f" or on ({by_model}) ".join(desired)}
                ## the same, or what an exporter expected that is gone since
                {DESIRED} = {WANTED_NOW} or on ({by_model}) {remembered}
                ## nodes that ready replicas stand on
                model:llm_serving_nodes:count = count by ({by_model}) (count by ({dialect.labels(*MODEL, "node")})
                  ({NODES} and on ({by_target}) target:llm_serving_ready:max == 1))
                ## GPUs of the ready replicas
                model:llm_serving_gpus:sum = sum by ({by_model}) (target:llm_serving_gpus:max
                  and on ({by_target}) target:llm_serving_ready:max == 1)
            """),
        ),
    )


def list_replicas(dialect: Dialect) -> str:
    """Every replica with its model: what no exporter calls a front end. One that has not read a page yet, or cannot, knows no model; where
    another one does, that one is right."""
    of_target = dialect.key("target")
    named, every = (
        dialect.one(series("target_info", matchers), *TARGET)
        for matchers in ('model_name!="",role!="frontend"', 'role!="frontend"')
    )
    return f"(({named} or on ({of_target}) {every}) unless on ({of_target}) {series('target_info', role='frontend')})"


def known(dialect: Dialect) -> str:
    """Every target with its model, front ends included: as some exporter names it, else as it was named within a day, because an exporter
    that has just started cannot learn it from a server that is down; without a model only where it never had one."""
    named, all_ = (dialect.one(series("target_info", matchers), *TARGET) for matchers in ('model_name!=""', ""))
    before = f"{dialect.apply_over_time('last_over_time', SEEN_TARGETS, DAY)} >= bool 0 and on ({dialect.key('target')}) {all_}"
    or_else = f" or on ({dialect.key('target')}) "
    return f"({or_else.join((named, before, all_))})"


def of_kind(dialect: Dialect, by_replica: str) -> str:
    """Series by replica with their GPUs' kind as a label."""
    return f"{by_replica} * on ({dialect.labels(*TARGET)}) group_left (gpu_name) {KIND}"


def group_workloads(dialect: Dialect, workloads: Iterable[Workload]) -> list[tuple[dict[str, str], list[Workload]]]:
    """Those of one model and role together, with the labels that they share, in the order of the settings."""
    by_labels: dict[tuple[tuple[str, str], ...], list[Workload]] = {}
    for workload in workloads:
        stated = {name: getattr(workload, field) for name, field in STATED_BY_WORKLOAD.items()} | dict(workload.labels)
        of_model = {"model_name": workload.model_name, "role": workload.role}
        labels = of_model | {name: stated[name] for name in dialect.own}
        by_labels.setdefault(tuple(labels.items()), []).append(workload)
    return [(dict(labels), workloads) for labels, workloads in by_labels.items()]


def _desired(dialect: Dialect, labels: Mapping[str, str], workloads: list[Workload]) -> str:
    """Replicas that all workloads of one model want together, under these labels; nothing where one of them is not said."""
    pods = (in_replicas(workload, of_fleet(dialect, "max", wanted_replicas(workload))) for workload in workloads)
    return name_model(" + ".join(pods), labels)


def in_replicas(workload: Workload, pods: str) -> str:
    """A number of pods as one of replicas."""
    return f"{pods} / {workload.pods_per_replica}" if workload.pods_per_replica > 1 else pods


def of_fleet(dialect: Dialect, aggregation: str, expression: str) -> str:
    """One value of somebody else's series, which know nothing of ours but what the scrape adds."""
    by = f" by ({dialect.key()})" if dialect.external else ""
    return f"{aggregation}{by} ({expression})"


def name_model(expression: str, labels: Mapping[str, str]) -> str:
    """It with the labels of a model."""
    for label, text in labels.items():
        expression = f'label_replace({expression}, "{label}", "{_replacement(text)}", "", "")'
    return expression


def _replacement(text: str) -> str:
    # $ begins a group in a replacement
    return text.replace("\\", r"\\").replace('"', r"\"").replace("$", "$$")
