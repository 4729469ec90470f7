"""When the alerts about who is who fire and when they do not: renamed labels, names and GPUs that are claimed twice, shards that nobody reads."""

from llm_serving_exporter.catalogue.health import AS_WRITTEN
from llm_serving_exporter.catalogue.spec import IDENTITY_LABELS
from tests.pack.builders import NOTHING, firing, held, target
from tests.pack.promtool import Case, Firing, Kind, Story, together

# --- LabelsRenamed: a series of ours has an exported_… label, for 10m; warning -----------------------------------------------------------


def _renamed(label: str, job: str, value: str = "1") -> Firing:
    return firing(
        "LabelsRenamed",
        {"label": label, "how": "renamed", "job": job},
        f"Job {job}: the label {label} of our series is stored as exported_{label}",
        f"The scrape puts a {label} of its own in its place, on {value} of the series that were looked at. Rules read namespace, pod, container, "
        "node, workload, workload_kind, region under either name; what goes by any other label is wrong until that one has its name back.",
    )


def _info(name: str, values: str, **labels: str) -> dict[str, str]:
    written = ",".join(f'{label}="{text}"' for label, text in {"target": name, **labels}.items())
    return {f"llm_serving_target_info{{{written}}}": values}


def _overwritten(label: str, job: str, targets: str) -> Firing:
    return firing(
        "LabelsRenamed",
        {"label": label, "how": "overwritten", "job": job},
        f"Job {job}: the label {label} of our series is lost",
        f"Something after the scrape writes its own {label} over ours, or takes ours away, such as enforcedNamespaceLabel or a relabelling: "
        f"{targets} targets cannot be distinguished by it.",
    )


def _written(**stored: str) -> dict[str, str]:
    """What is stored of the series that has every label; those that are not named are as they were written."""
    labels = {**dict.fromkeys(IDENTITY_LABELS, AS_WRITTEN), **stored}
    written = ",".join(f'{name}="{text}"' for name, text in labels.items() if text)
    return {f"llm_serving_written_labels_info{{{written}}}": held((50, 1))}


_RENAMED = together(
    "LabelsRenamed",
    "scrapes with labels of their own",
    ("8m", "12m", "40m"),
    Story(
        (Kind.FIRES, Kind.NOT_YET, Kind.RECOVERY),
        # somebody sets honor_labels at minute 25
        _info(
            "llm/chat-0:8000", f"{held((25, 1))} stale", job="pods", namespace="monitoring", exported_namespace="llm", pod="exporter-0",
            exported_pod="chat-0", model_name="chat", role="unified",
        ) | _info("llm/chat-0:8000", f"{NOTHING}x25 {held((20, 1))}", job="pods", namespace="llm", pod="chat-0", model_name="chat", role="unified"),
        {"12m": (_renamed("namespace", "pods"), _renamed("pod", "pods"))},
    ),
    Story(
        (Kind.FIRES, Kind.ROLES),
        # a pod label of that name is mapped onto every series
        _info("code-0:8000", held((50, 1)), job="mapped", role="leader", exported_role="decode", model_name="code")
        | {'llm_serving_limiter{job="mapped",target="code-0:8000",state="on",exported_state="starved"}': held((50, 1))},
        {moment: (_renamed("role", "mapped"), _renamed("state", "mapped")) for moment in ("12m", "40m")},
    ),
    Story(
        (Kind.FIRES,),
        # nothing but GPUs there
        {'llm_serving_gpu_up{job="gpus",gpu="GPU-1",gpu_name="H100",node="k8s-1",exported_node="host-1"}': held((50, 1))},
        {moment: _renamed("node", "gpus") for moment in ("12m", "40m")},
    ),
    # as it should be, whatever else the scrape adds
    Story((Kind.BELOW, Kind.ONE_REPLICA), _info("llm/b-0:8000", held((50, 1)), job="good", namespace="llm", pod="b-0", endpoint="metrics", app="b")),
    # another exporter's series are its own affair
    Story((Kind.BELOW,), {'kube_pod_info{job="ksm",namespace="monitoring",exported_namespace="llm"}': held((50, 1))}),
    # a host's, by a name of its own
    Story((Kind.BELOW,), _info("rack/7:8000", held((50, 1)), job="hosts", node="host-7")),
    # honor_labels, and a namespace that is written over all that comes
    Story(
        (Kind.FIRES,),
        _info("llm/d-0:8000", held((50, 1)), job="forced", namespace="monitoring", pod="d-0")
        | _info("other/d-0:8000", held((50, 1)), job="forced", namespace="monitoring", pod="d-0")
        | _written(job="forced", namespace="monitoring"),
        dict.fromkeys(("12m", "40m"), (_overwritten("namespace", "forced", "2"),)),
    ),
    # no honor_labels, and a relabelling that drops exported_node; nothing has a node
    Story(
        (Kind.FIRES,),
        _info("e:8000", held((50, 1)), job="dropped", node="k8s-1") | _written(job="dropped", node="k8s-1"),
        dict.fromkeys(("12m", "40m"), (_overwritten("node", "dropped", "1"),)),
    ),
    # of a target without a namespace there is nothing to rename, and the scrape's stands on it
    Story(
        (Kind.FIRES,),
        _info("f:8000", held((50, 1)), job="unknown", namespace="monitoring")
        | _written(job="unknown", namespace="monitoring", exported_namespace=AS_WRITTEN),
        dict.fromkeys(("12m", "40m"), (_renamed("namespace", "unknown"),)),
    ),
    # a name that somebody chose looks like that of a pod
    Story(
        (Kind.BELOW,),
        _info("team/server:8000", held((50, 1)), job="chosen", namespace="prod", pod="server") | _written(job="chosen"),
    ),
    # it says how many series there are
    doubled=False,
)  # fmt: skip
_NO_SERIES = Case("LabelsRenamed", "no exporter", {"up": held((40, 1))}, "30m", kinds=(Kind.ABSENT,))
_KNOWN = Case(
    "LabelsRenamed",
    "a scrape that nobody can change",
    _info(
        "llm/chat-0:8000", held((40, 1)), job="pods", namespace="monitoring", exported_namespace="llm", exported_pod="chat-0", role="a",
        exported_role="unified",
    ),
    {"30m": _renamed("role", "pods")},
    doubled=False,
    rules="known_scrape",
)  # fmt: skip


# --- ClaimedTwice: one name on two nodes or in two clusters, one GPU for two targets, for 10m; warning -------------------------------------


def _claimed(name: str, of: str, places: str) -> Firing:
    return firing(
        "ClaimedTwice",
        {"target": name, "of": of},
        f"{name}: one name on several {of}",
        f"Exporters that do not agree say that it is on: {places} - so two servers count as one, and whatever is said of it is a mixture.",
    )


def _node(
    name: str, node: str, instance: str, *spans: tuple[int, float | str], reads: bool = True, **more: str
) -> dict[str, str]:
    """A node of a target. `reads`: whether the exporter reads it, or is beside one of its workers."""
    labels = {"target": name, "model_name": "chat", "role": "unified", "node": node, "instance": instance, **more}
    written = ",".join(f'{label}="{text}"' for label, text in labels.items())
    values = held(*(spans or ((50, 1),)))
    of_target = _info(name, values, instance=instance, **more) if reads else {}
    return {f"llm_serving_target_node_info{{{written}}}": values, **of_target}


def _in_cluster(name: str, cluster: str, instance: str) -> dict[str, str]:
    return _info(name, held((50, 1)), cluster=cluster, instance=instance)


def _share(
    gpu: str, name: str, share: float | None, instance: str, *spans: tuple[int, float | str], source: str = "kubelet"
) -> dict[str, str]:
    """A claim. `share`: None where the exporter cannot say how much of the GPU is claimed; `source`: what says it."""
    labels = f'{{gpu="{gpu}",target="{name}",instance="{instance}"}}'
    there = spans or ((50, 1),)
    claim = {f'llm_serving_gpu_target_info{labels[:-1]},origin="kubelet"}}': held(*there)}
    if share is None:
        return claim
    said = [(samples, share if value == 1 else value) for samples, value in there]
    return claim | {f'llm_serving_gpu_target_share_ratio{labels[:-1]},source="{source}"}}': held(*said)}


def _gpu_claimed(gpu: str, count: str, targets: str) -> Firing:
    return firing(
        "ClaimedTwice",
        {"gpu": gpu},
        f"GPU {gpu} is claimed by {count} targets",
        f"Their shares add up to more than all of it, or are not all known: {targets} - its time and its cost count for each of them, or for "
        "none where one exporter sees it.",
    )


_ALWAYS = ("12m", "40m")


_PARTLY = Case(
    "LabelsRenamed",
    "a cluster that targets have of their own, and one that the scrape puts on all",
    _info("llm/g-0:8000", held((40, 1)), job="own", instance="a:10077", cluster="eu")
    | {'llm_serving_target_state{target="llm/g-0:8000",job="own",instance="a:10077",state="ready"}': held((40, 1))}
    | _info("llm/h-0:8000", held((40, 1)), job="all", instance="b:10077", cluster="us")
    | {
        'llm_serving_target_state{target="llm/h-0:8000",job="all",instance="b:10077",cluster="us",state="ready"}': held(
            (40, 1)
        )
    },
    {
        "30m": firing(
            "LabelsRenamed",
            {"label": "cluster", "how": "partly", "job": "own", "cluster": "eu"},
            "Job own: the label cluster of our series is not the same on all",
            "1 targets have a cluster of their own on their info series and not on the others, while external_labels of the rules says that a "
            "scrape puts it on every one. The two do not meet, and nothing is said of these targets.",
            rules="identity_clusters",
        )
    },
    doubled=False,
    rules="identity_clusters",
)


# --- the same where what is stated of a model fits several of its fleets, or none ------------------------------------------------------------


def _unclear(model: str, role: str, of: str, there: str, **namespace: str) -> Firing:
    return firing(
        "LabelsRenamed",
        {**namespace, "model_name": model, "role": role, "of": of, "how": "unclear"},
        f"{' '.join([*namespace.values(), model])} ({role}): {of} does not say which replicas it means",
        f"It and the targets of this model do not have the same namespace. There are: {there} - so it counts for none of them, and a lost replica, "
        "or a drill that is due, is not noticed.",
        action="write namespace there as the targets have it; the runbook says where",
        rules="identity_namespaces",
    )


def _fleet(model: str, *spans: tuple[int, float | str], role: str = "unified", **namespace: str) -> dict[str, str]:
    return _info(
        f"{model}-{''.join(namespace.values())}:8000",
        held(*(spans or ((50, 1),))),
        model_name=model,
        role=role,
        **namespace,
    )


def _expected(model: str, role: str = "unified", **namespace: str) -> dict[str, str]:
    written = ",".join(f'{name}="{text}"' for name, text in {"model_name": model, "role": role, **namespace}.items())
    return {f"llm_serving_expected_replicas{{{written}}}": held((50, 2))}


_UNCLEAR = together(
    "LabelsRenamed",
    "fleets of two namespaces",
    ("8m", *_ALWAYS),
    Story(
        (Kind.FIRES, Kind.NOT_YET, Kind.RECOVERY),
        # one of them goes at minute 25: then the other is meant
        _fleet("two", namespace="a") | _fleet("two", (25, 1), (1, "stale"), namespace="b") | _expected("two"),
        {"12m": _unclear("two", "unified", "expected_replicas", "[namespace a] [namespace b]")},
    ),
    Story(
        (Kind.FIRES, Kind.ONE_REPLICA),
        # the targets do not say it
        _fleet("bare") | _expected("bare", namespace="prod"),
        dict.fromkeys(_ALWAYS, (_unclear("bare", "unified", "expected_replicas", "[namespace not known]", namespace="prod"),)),
    ),
    Story(
        (Kind.FIRES, Kind.ROLES),
        # of another role there is one fleet only
        _fleet("split", role="prefill", namespace="a") | _fleet("split", role="decode", namespace="a")
        | _fleet("split", role="decode", namespace="b") | _expected("split", "prefill") | _expected("split", "decode"),
        dict.fromkeys(_ALWAYS, (_unclear("split", "decode", "expected_replicas", "[namespace a] [namespace b]"),)),
    ),
    Story((Kind.BELOW,), _fleet("one", namespace="a") | _expected("one")),
    Story((Kind.BELOW,), _fleet("said", namespace="a") | _fleet("said", namespace="b") | _expected("said", namespace="b")),
    Story((Kind.BELOW, Kind.RESTART), _fleet("away", namespace="a") | _expected("away", namespace="gone")),
    Story((Kind.ABSENT,), _expected("nobody") | _fleet("unasked", namespace="a") | _fleet("unasked", namespace="b")),
    rules="identity_namespaces",
)  # fmt: skip
_CLAIMED = together(
    "ClaimedTwice",
    "names and GPUs of two",
    ("8m", *_ALWAYS),
    Story(
        (Kind.FIRES, Kind.NOT_YET, Kind.RECOVERY),
        # each beside its own server, and neither knows its host's name; one is given a name at minute 25
        _node("vllm:8000", "node-a", "a:10077") | _node("vllm:8000", "node-b", "b:10077", (25, 1), (1, "stale")),
        {"12m": _claimed("vllm:8000", "nodes", "node-a node-b")},
    ),
    Story(
        (Kind.FIRES,),
        # where nobody sets honor_labels
        _node("shm:8000", "k-1", "a:10077", exported_node="node-a") | _node("shm:8000", "k-2", "b:10077", exported_node="node-b"),
        {moment: _claimed("shm:8000", "nodes", "node-a node-b") for moment in _ALWAYS},
    ),
    # a pair that reads one server from two nodes, with and without honor_labels
    Story((Kind.BELOW,), _node("llm/pair-0:8000", "node-c", "a:10077") | _node("llm/pair-0:8000", "node-c", "b:10077")),
    Story(
        (Kind.BELOW,),
        _node("llm/two-0:8000", "k-1", "a:10077", exported_node="node-c") | _node("llm/two-0:8000", "k-2", "b:10077", exported_node="node-c"),
    ),
    # one replica on two nodes, read by two
    Story(
        (Kind.BELOW,),
        {key: text for instance in ("a:10077", "b:10077") for node in ("node-d", "node-e") for key, text in _node("llm/wide-0:8000", node, instance).items()},
    ),
    # a pod that moves, every quarter of an hour; both exporters know it for two minutes
    Story(
        (Kind.BELOW, Kind.RESTART),
        _node("llm/moves-0:8000", "node-a", "a:10077", (15, 1), (1, "stale"), (13, NOTHING), (21, 1))
        | _node("llm/moves-0:8000", "node-b", "b:10077", (13, NOTHING), (17, 1), (1, "stale")),
    ),
    Story(
        (Kind.FIRES,),
        _in_cluster("llm/both-0:8000", "eu", "a:10077") | _in_cluster("llm/both-0:8000", "us", "b:10077"),
        {moment: _claimed("llm/both-0:8000", "clusters", "eu us") for moment in _ALWAYS},
    ),
    Story((Kind.BELOW,), _in_cluster("llm/eu-0:8000", "eu", "a:10077") | _in_cluster("llm/eu-0:8000", "eu", "b:10077")),
    Story(
        (Kind.FIRES,),
        # sidecars, each of which takes all that it sees for its own
        _share("GPU-1", "llm/a-0:8000", 1, "a:10077") | _share("GPU-1", "llm/b-0:8000", 1, "b:10077"),
        {moment: _gpu_claimed("GPU-1", "2", "llm/a-0:8000 llm/b-0:8000") for moment in _ALWAYS},
    ),
    # sidecar and DaemonSet say the same; two that share; a third of each
    Story((Kind.BELOW, Kind.ONE_REPLICA), _share("GPU-2", "llm/c-0:8000", 1, "a:10077") | _share("GPU-2", "llm/c-0:8000", 1, "b:10077")),
    Story((Kind.BELOW,), _share("GPU-3", "llm/d-0:8000", 0.5, "a:10077") | _share("GPU-3", "llm/e-0:8000", 0.5, "a:10077")),
    Story((Kind.BELOW,), {k: t for n in "xyz" for k, t in _share("GPU-4", f"llm/{n}-0:8000", 1 / 3, "a:10077").items()}),
    # a DaemonSet: the leader's exporter reads it, that of the worker's node says where the worker is
    Story(
        (Kind.BELOW,),
        _node("llm/lws-0:8000", "node-f", "f:10077") | _node("llm/lws-0:8000", "node-g", "g:10077", reads=False, model_name=""),
    ),
    # time slices of a kubelet that does not say how many there are; one alone is nobody else's
    Story(
        (Kind.FIRES,),
        _share("GPU-5", "llm/f-0:8000", None, "a:10077") | _share("GPU-5", "llm/g-0:8000", None, "a:10077"),
        {moment: _gpu_claimed("GPU-5", "2", "llm/f-0:8000 llm/g-0:8000") for moment in _ALWAYS},
    ),
    Story((Kind.BELOW,), _share("GPU-6", "llm/h-0:8000", None, "a:10077") | _share("GPU-6", "llm/h-0:8000", 1, "b:10077")),
    Story(
        (Kind.FIRES,),
        _share("GPU-7", "llm/i-0:8000", None, "a:10077") | _share("GPU-7", "llm/j-0:8000", 0.5, "b:10077"),
        {moment: _gpu_claimed("GPU-7", "2", "llm/i-0:8000 llm/j-0:8000") for moment in _ALWAYS},
    ),
    # a MIG instance each, three of ten time slices and the other seven
    Story((Kind.BELOW,), _share("MIG-1", "llm/k-0:8000", 1, "a:10077") | _share("MIG-2", "llm/l-0:8000", 1, "a:10077")),
    Story((Kind.BELOW,), _share("GPU-8", "llm/m-0:8000", 0.3, "a:10077") | _share("GPU-8", "llm/n-0:8000", 0.7, "a:10077")),
    # a pod that takes the place of another: for a minute both are known; the next one stays
    Story(
        (Kind.BELOW, Kind.RESTART),
        _share("GPU-9", "llm/o-0:8000", 1, "a:10077", (21, 1), (1, "stale"))
        | _share("GPU-9", "llm/p-0:8000", 1, "a:10077", (20, NOTHING), (30, 1)),
    ),
    # two engines on one card, by the memory of each; then one states its part
    Story(
        (Kind.BELOW,),
        _share("GPU-10", "llm/q-0:8000", 0.75, "a:10077", (25, 1), (1, "stale"), source="process_memory")
        | _share("GPU-10", "llm/q-0:8000", 0.6, "a:10077", (25, NOTHING), (25, 1), source="configured")
        | _share("GPU-10", "llm/r-0:8000", 0.25, "a:10077", (25, 1), (25, 0.4), source="process_memory"),
    ),
    Story((Kind.ABSENT,), target("none", "none-0")),
    doubled=False,
)  # fmt: skip
_CLUSTERS = Case(
    "ClaimedTwice",
    "clusters that the settings tell apart",
    _in_cluster("llm/both-0:8000", "eu", "a:10077")
    | _in_cluster("llm/both-0:8000", "us", "a:10077")
    | _node("llm/both-0:8000", "node-a", "a:10077", reads=False, cluster="eu")
    | _node("llm/both-0:8000", "node-b", "a:10077", reads=False, cluster="us"),
    "40m",
    rules="identity_clusters",
)


CASES = (
    _RENAMED, _NO_SERIES, _KNOWN, _PARTLY, _UNCLEAR, _CLAIMED, _CLUSTERS,
)  # fmt: skip
