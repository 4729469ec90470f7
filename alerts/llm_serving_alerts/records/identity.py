"""Who is who: where targets and GPUs are, whatever labels the scrape added, and which of them two exporters claim for different things.

A scrape of a pod has labels of its own (namespace, pod, container, node: of the exporter's pod). With `honor_labels` ours stay as they are;
without it, which operators can force, ours are called exported_…. These records have ours either way, and every other rule reads these.
"""

from __future__ import annotations

from collections.abc import Iterator

from llm_serving_alerts.promql import (
    GPUS,
    HOUR,
    MINUTE,
    NODES,
    OWNERS,
    REPLACED,
    SCRAPES,
    TARGET,
    TARGETS,
    Dialect,
    series,
)
from llm_serving_alerts.rules import MINUTELY_SECONDS, Group, Record, write_records
from llm_serving_alerts.settings import Settings
from llm_serving_exporter.catalogue.spec import PLACE_LABELS

# of a GPU that is gone an alert still says where it was
KNOWN_GPUS = "gpu:llm_serving_gpu:last1h"
TARGET_CLAIMS = "target:llm_serving_claims:count"
GPU_CLAIMS = "gpu:llm_serving_claims:count"
CLUSTER = "cluster"
# of a GPU: thirds of it add up to all but a rounding
_WHOLE = 1.001
# what else a target's own labels may be told from; instance_type and provider_id are a node's
BELONGS = ("workload", "workload_kind", "region")
# a counter of the last hour is still counted when its target has gone
_REMEMBERED_SECONDS, _STEP_SECONDS = 2 * HOUR, 5 * MINUTE
_GPU_SECONDS = HOUR + 2 * _STEP_SECONDS


def identity(dialect: Dialect, settings: Settings) -> Group:
    """One series for each target, each of its nodes and each GPU."""
    return Group("llm-serving.identity", (_scrapes(dialect), *_targets(dialect), *_gpus(dialect)))


def _scrapes(dialect: Dialect) -> Record:
    """What every scrape of an exporter does to labels, by the one series that has all of them."""
    labels = readable(dialect)
    shown = series("written_labels_info")
    for name in labels:
        shown = f'label_replace({shown}, "{REPLACED}{name}", "1", "exported_{name}", ".+")'
    who = dialect.key("job", "instance")
    by = dialect.key("job", "instance", *(f"{REPLACED}{name}" for name in labels))
    return Record(
        SCRAPES,
        f"topk by ({who}) (1, max by ({by}) ({shown}))",
        "1 for each scrape of an exporter, with replaced_… = 1 for each label that it puts one of its own in the place of",
    )


def readable(dialect: Dialect) -> tuple[str, ...]:
    """The labels that rules read under either name."""
    return tuple(dict.fromkeys((*PLACE_LABELS, *BELONGS, *dialect.own)))


def _targets(dialect: Dialect) -> Iterator[Record]:
    of_target = dialect.key("target")
    labels = readable(dialect)
    stated = dialect.written(series("target_info"), *labels)
    # of several exporters that do not agree, what most of them say
    most = f"topk by ({of_target}) (1, count by ({dialect.key('target', *labels)}) ({stated}))"
    yield from write_records(f"""
        ## 1 for each target, with where it is and what it belongs to; no label where that is not known
        {TARGETS} = ({most}) >= bool 0
    """)
    if dialect.own:
        own = f"max by ({dialect.key('target', *dialect.own)})"
        before = f"topk by ({of_target}) (1, {own} ({dialect.apply_over_time('last_over_time', TARGETS, _REMEMBERED_SECONDS)}))"
        yield from write_records(f"""
            ## the same with the identity labels alone, also of a target that has gone within two hours
            {OWNERS} = {own} ({TARGETS}) or on ({of_target}) {before}
        """)
    nodes = dialect.bare(dialect.written(series("target_node_info"), "node"), "target", "node")
    # the exporter beside a worker knows whose GPUs it has, and neither the model nor the role of the server that it does not read
    named, every = (dialect.one(series("target_info", matchers), *TARGET) for matchers in ('model_name!=""', ""))
    who = f"topk by ({of_target}) (1, {named} or on ({of_target}) {every})"
    added = ", ".join((*dialect.own, *(name for name in TARGET if name != "target")))
    yield Record(NODES, f"{nodes} * on ({of_target}) group_left ({added}) {who}", "1 for each node that a target spans")


def _gpus(dialect: Dialect) -> Iterator[Record]:
    of_gpu, place = dialect.key("gpu"), dialect.key("gpu", "gpu_name", "node")
    shown = dialect.written(series("gpu_up"), "node")
    # one card that two exporters call by different nodes is one card: the one that reads it knows best
    before = dialect.apply_over_time("last_over_time", GPUS, _GPU_SECONDS, _STEP_SECONDS)
    yield from write_records(f"""
        ## 1 for each GPU that an exporter shows, with its name and its node
        {GPUS} = (topk by ({of_gpu}) (1, max by ({place}) ({shown}))) >= bool 0
        ## the same, also of a GPU that has gone within an hour
        {KNOWN_GPUS} = {GPUS} or on ({of_gpu}) topk by ({of_gpu}) (1, {before})
    """)


def claims(dialect: Dialect, settings: Settings) -> Group:
    """Names and GPUs that are claimed for more than one thing. Exporters that say the same of a target, such as a pair, do not differ."""
    of_target = dialect.key("target")
    said_by = dialect.key("target", "instance")
    # one beside a worker knows the nodes of its own pods alone, and has no target of that name
    nodes = f"({dialect.written(series('target_node_info'), 'node')} and on ({said_by}) {series('target_info')})"
    by_exporter = f"count by ({dialect.key('target', 'node', 'instance')}) ({nodes})"
    saying = f"count by ({dialect.key('target', 'node')}) ({by_exporter})"
    exporters = f"count by ({said_by}) ({nodes})"
    asked = f"count by ({of_target}) ({exporters})"
    rules = [
        Record(
            TARGET_CLAIMS,
            # a replica may span several nodes, and one exporter may not know yet of all: those of one server all name one of them
            f"count by ({of_target}) ({saying}) unless on ({of_target}) ({saying} == on ({of_target}) group_left () {asked})",
            "nodes of a target where no node is named by all exporters that know one of its nodes",
            {"of": "nodes"},
        )
    ]
    if CLUSTER not in dialect.identity:
        named = series("target_info", f'{CLUSTER}!=""')
        clusters = f"count by ({dialect.key('target', CLUSTER)}) ({named})"
        rules += write_records(f"""
            ## clusters that have a target of this name
            {TARGET_CLAIMS}{{of="clusters"}} = count by ({of_target}) ({clusters}) > 1
        """)
    of_gpu, of_both = dialect.key("gpu"), dialect.key("gpu", "target")
    claimants = dialect.bare(series("gpu_target_info"), "gpu", "target")
    shares = dialect.bare(series("gpu_target_share_ratio"), "gpu", "target")
    several = f"count by ({of_gpu}) ({claimants}) > 1"
    too_much = f"sum by ({of_gpu}) ({shares}) > {_WHOLE}"
    # whoever has a part that nobody can say is one too many for those who cannot be added up
    unsaid = f"count by ({of_gpu}) ({claimants} unless on ({of_both}) {shares})"
    rules += write_records(f"""
        ## targets that claim a GPU, where their shares add up to more than all of it or are not all known
        {GPU_CLAIMS} = {several} and on ({of_gpu}) ({too_much} or on ({of_gpu}) {unsaid})
    """)
    return Group("llm-serving.claims", tuple(rules), MINUTELY_SECONDS)
