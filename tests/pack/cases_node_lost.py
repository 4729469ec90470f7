"""When NodeLost fires, which alerts carry the node, and what is told of a model that is gone."""

from __future__ import annotations

from dataclasses import replace

from tests.pack.builders import Grows, counter, engine, firing, held, target
from tests.pack.cases_exporters import _exporter as exporter
from tests.pack.cases_ttft import _burn, slo_events
from tests.pack.promtool import Case, Firing

_ROLE = {"role": "unified"}


def _lost(node: str, models: str) -> Firing:
    return firing(
        "NodeLost",
        "critical",
        "node_loss",
        {"node": node},
        f"node {node} is lost",
        f"None of its replicas serves, and it does not answer, or Kubernetes does not hear of it. Ready replicas that it had: {models}. "
        "Their own alerts carry its name and are not told while this page is open.",
        "see whether the others carry the load (N-1), then bring the node back or replace it",
    )


def _on(
    node: str, model: str, name: str, *states: tuple[int, str], fault: str = "silent", nodes: tuple[str, ...] = ()
) -> dict[str, str]:
    """A replica on a node (or on several, by `nodes`). While it is down it has this fault; "": its host answers."""
    found = target(model, name, *states)
    for one in nodes or (node,):
        found[f'llm_serving_target_node_info{{target="{name}",model_name="{model}",role="unified",node="{one}"}}'] = (
            held((sum(samples for samples, _ in states), 1))
        )
    if fault:
        key = f'llm_serving_target_fault_info{{target="{name}",fault="{fault}",node="{node}"}}'
        found[key] = held(
            *((samples, 1 if now == "down" else "stale" if samples == 1 else "_") for samples, now in states)
        )
    return found


_THERE = exporter("central", (90, True))
_GOES, _STAYS = ((20, "ready"), (30, "down"), (40, "ready")), ((90, "ready"),)
_SILENT = (
    _THERE
    | _on("n-1", "chat", "chat-0", *_GOES)
    | _on("n-1", "embed", "embed-0", *_GOES)
    | _on("n-2", "chat", "chat-1", *_STAYS)
    | _on("n-3", "chat", "chat-2", *_STAYS)
)
_TARGETS_DOWN = firing(
    "TargetsDown",
    "critical",
    "exporter",
    {"model_name": "embed", **_ROLE, "node": "n-1"},
    "embed (unified): 100% of its replicas are down",
    "Replicas wanted: unknown, known: 1. 100% of them do not answer, neither loading nor asleep.",
    "look for what they share: node pool, registry, weights, network",
    "var-model_name=embed&var-role=unified",
)


def _ready(node: str, *spans: tuple[int, float | str]) -> dict[str, str]:
    return {f'kube_node_status_condition{{node="{node}",condition="Ready",status="true"}}': held(*spans)}


_NODES = (
    Case(
        "NodeLost",
        "nothing on a node takes a connection, from minute 20 to 50",
        _SILENT,
        "22m",
        more=(("27m", (_lost("n-1", "chat (unified) 1, embed (unified) 1"),)), ("56m", ())),
    ),
    Case(
        "NodeLost",
        "a process that is down on a node of its own: its host refuses the connection",
        _THERE | _on("n-1", "chat", "chat-0", *_GOES, fault="") | _on("n-2", "chat", "chat-1", *_STAYS),
        "40m",
    ),
    Case(
        "NodeLost",
        "one of two replicas on a node is silent, the other one serves",
        _THERE | _on("n-1", "chat", "chat-0", *_GOES) | _on("n-1", "chat", "chat-1", *_STAYS),
        "40m",
    ),
    Case(
        "NodeLost",
        "of a replica that spans two nodes the one with its address is lost",
        _THERE
        | _on("n-1", "chat", "chat-0", *_GOES, nodes=("n-1", "n-2"))
        | _on("n-3", "chat", "chat-1", *_STAYS, nodes=("n-3", "n-4")),
        "30m",
        (_lost("n-1", "chat (unified) 1"),),
        doubled=False,
    ),
    Case(
        "NodeLost",
        "a node that never had a ready replica",
        _THERE | _on("n-1", "chat", "chat-0", (90, "down")) | _on("n-2", "chat", "chat-1", *_STAYS),
        "40m",
    ),
    Case(
        "NodeLost",
        "Kubernetes hears of it no more, and its pods are gone",
        _THERE
        | _ready("n-1", (20, 1), (30, 0), (40, 1))
        | _ready("n-2", (90, 1))
        | {key: f"{text} stale" for key, text in _on("n-1", "chat", "chat-0", (20, "ready"), fault="").items()}
        | _on("n-2", "chat", "chat-1", *_STAYS),
        "28m",
        (_lost("n-1", "chat (unified) 1"),),
        more=(("52m", ()),),
        doubled=False,
    ),
    Case(
        "NodeLost",
        "the same of a node that somebody cordoned",
        _THERE
        | _ready("n-1", (20, 1), (70, 0))
        | {'kube_node_spec_unschedulable{node="n-1"}': held((18, 0), (72, 1))}
        | {key: f"{text} stale" for key, text in _on("n-1", "chat", "chat-0", (18, "ready"), fault="").items()}
        | _on("n-2", "chat", "chat-1", *_STAYS),
        "40m",
    ),
    Case(
        "NodeLost",
        "Kubernetes calls it not ready, and its replica serves",
        _THERE | _ready("n-1", (20, 1), (70, 0)) | _on("n-1", "chat", "chat-0", *_STAYS),
        "40m",
    ),
    Case(
        "NodeLost",
        "the exporter on it goes with it: whoever asks waits",
        exporter("n-1", (20, True), (70, False), mode="node", node="n-1")
        | exporter("n-2", (90, True), mode="node", node="n-2")
        | {'scrape_duration_seconds{instance="n-1:10077",job="llm"}': held((20, 0.02), (70, 10))}
        | {key: f"{text} stale" for key, text in _on("n-1", "chat", "chat-0", (20, "ready"), fault="").items()}
        | _on("n-2", "chat", "chat-1", *_STAYS),
        "40m",
        (_lost("n-1", "chat (unified) 1"),),
        doubled=False,
    ),
    Case(
        "NodeLost",
        "the exporter on it is down alone: its host refuses the connection",
        exporter("n-1", (20, True), (70, False), mode="node", node="n-1")
        | exporter("n-2", (90, True), mode="node", node="n-2")
        | {'scrape_duration_seconds{instance="n-1:10077",job="llm"}': held((20, 0.02), (70, 0.001))}
        | {key: f"{text} stale" for key, text in _on("n-1", "chat", "chat-0", (20, "ready"), fault="").items()}
        | _on("n-2", "chat", "chat-1", *_STAYS),
        "40m",
    ),
)

# of 100 requests a minute 20 are late, all the time; a node of four is lost from minute 20 to 50
_LATE = exporter("central", (120, True)) | slo_events(
    engine("chat", "chat-1"), "ttft", counter(Grows(120, 80)), counter(Grows(120, 20))
)
_PAGE, _LATE_TICKET = (_burn(severity, "chat", "20", "20%", "20%") for severity in ("critical", "warning"))
_OF_THE_NODE = replace(_PAGE, labels={**_PAGE.labels, "node": "n-1"})


def _one_of(replicas: int) -> dict[str, str]:
    """The first of so many is lost with its node."""
    found = dict(_LATE)
    for number in range(replicas):
        states = ((120, "ready"),) if number else ((20, "ready"), (30, "down"), (70, "ready"))
        found |= _on(f"n-{number + 1}", "chat", f"chat-{number}", *states)
    return found


_BURNS = (
    Case(
        "TTFTBurn",
        "a lost node explains it, and for a quarter of an hour after it is back what the windows still hold",
        _one_of(4),
        "18m",
        (_PAGE,),
        more=(
            ("30m", (_OF_THE_NODE, _LATE_TICKET)),
            ("54m", (_LATE_TICKET,)),
            ("80m", (_PAGE, _LATE_TICKET)),
        ),
        doubled=False,
        rules="burns",
    ),
    Case(
        "TTFTBurn",
        "a lost node of a dozen does not explain it",
        _one_of(12),
        "30m",
        (_PAGE, _LATE_TICKET),
        more=(("54m", (_PAGE, _LATE_TICKET)),),
        doubled=False,
        rules="burns",
    ),
)

# --- models that are gone ------------------------------------------------------------------------------------------------------------------


def _vanishes(model: str, at: int = 30) -> dict[str, str]:
    return {key: f"{text} stale" for key, text in target(model, "", (at, "ready")).items()}


def _in_kubernetes(idle: dict[str, str]) -> dict[str, str]:
    """The model `idle` as a Deployment of its name."""
    place = '{namespace="llm",workload="idle",workload_kind="Deployment",'
    return {key.replace("{", place, 1) if "target_info" in key else key: text for key, text in idle.items()}


def _owned_by(model: str, kind: str, pod: str) -> dict[str, str]:
    """A model whose pod something else owns than what kube-state-metrics tells of."""
    place = f'{{namespace="llm",workload="{model}",workload_kind="{kind}",pod="{pod}",'
    return {key.replace("{", place, 1) if "target_info" in key else key: text for key, text in _vanishes(model).items()}


def _gone(model: str) -> Firing:
    return firing(
        "TargetsDown",
        "critical",
        "exporter",
        {"model_name": model, **_ROLE},
        f"{model} (unified): 100% of its replicas are gone",
        "Replicas wanted: unknown, known: unknown. It served, and no exporter finds any of them any more.",
        "look for what they share: node pool, registry, weights, network",
        f"var-model_name={model}&var-role=unified",
    )


def _vanished(model: str, count: int) -> Firing:
    return firing(
        "ReplicaLost",
        "warning",
        "node_loss",
        {"model_name": model, **_ROLE},
        f"{model} (unified): {count} replicas missing",
        f"Wanted: unknown. Neither ready nor asleep: {count}.",
        "find the pod or host that does not come up",
        f"var-model_name={model}&var-role=unified",
    )


def _tokens(model: str, minutes: int) -> dict[str, str]:
    labels = f'target="{model}-0",model_name="{model}",engine="0",role="unified"'
    return {f"llm_serving_decode_tokens_total{{{labels}}}": f"0+600x{minutes} stale"}


_LONG = exporter("central", (1800, True))
_SERVED = _LONG | _vanishes("busy") | _tokens("busy", 29)
_VANISHED = (
    Case(
        "TargetsDown",
        "a model that served is gone with all that was said of it: until it is back, also after 26 hours",
        _SERVED,
        "45m",
        (_gone("busy"),),
        more=(("1600m", (_gone("busy"),)),),
        doubled=False,
    ),
    Case("TargetsDown", "one that did nothing in its last hour", _LONG | _vanishes("idle"), "45m"),
    Case(
        "TargetsDown",
        "one that is back under other names",
        _SERVED
        | {
            key.replace("busy-0", "busy-1"): "_x33 "
            + held((40, 1 if "ready" in key or "info" in key or "_up" in key else 0))
            for key in target("busy", "", (40, "ready"))
        },
        "45m",
    ),
    Case(
        "TargetsDown",
        "one that is retired until a moment",
        _SERVED,
        "45m",
        more=(("120m", (_gone("busy"),)),),
        doubled=False,
        rules="retired",
    ),
    # KServe on Knative, KServe with KEDA, Argo Rollouts, LeaderWorkerSet: names of pods as their controllers make them
    *(
        Case(
            "TargetsDown",
            f"an {kind} that is scaled to zero, as kube-state-metrics says of what it made",
            _LONG
            | _owned_by("busy", kind, pod)
            | _tokens("busy", 29)
            | {f'{wanted}{{namespace="llm",{label}="{name}"}}': held((29, 1), (40, 0))},
            "45m",
        )
        for kind, pod, wanted, label, name in (
            (
                "InferenceService",
                "busy-predictor-00001-deployment-6f9a1c7d4-x2k4q",
                "kube_deployment_spec_replicas",
                "deployment",
                "busy-predictor-00001-deployment",
            ),
            (
                "LLMInferenceService",
                "busy-kserve-59f5d6c8bb-7mjqz",
                "kube_deployment_spec_replicas",
                "deployment",
                "busy-kserve",
            ),
            ("Rollout", "busy-687d76d795-zlwzv", "kube_replicaset_spec_replicas", "replicaset", "busy-687d76d795"),
            ("LeaderWorkerSet", "busy-0", "kube_statefulset_replicas", "statefulset", "busy"),
        )
    ),
    # 63 characters are the most of a pod's name, so that the generated end stands where the hash was
    Case(
        "TargetsDown",
        "an InferenceService that is scaled to zero, of a pod whose name was cut to fit",
        _LONG
        | _owned_by("busy", "InferenceService", "busy-instruct-8b-predictor-00001-deployment-6f9a1c7d4x2k4q")
        | _tokens("busy", 29)
        | {
            'kube_pod_owner{namespace="llm",pod="busy-instruct-8b-predictor-00001-deployment-6f9a1c7d4x2k4q",owner_kind="ReplicaSet",'
            'owner_name="busy-instruct-8b-predictor-00001-deployment-6f9a1c7d4"}': held((29, 1), (1, "stale")),
            'kube_deployment_spec_replicas{namespace="llm",deployment="busy-instruct-8b-predictor-00001-deployment"}': held(
                (29, 1), (40, 0)
            ),
        },
        "45m",
    ),
    Case(
        "TargetsDown",
        "an InferenceService is gone, and kube-state-metrics says that what it made is wanted",
        _LONG
        | _owned_by("busy", "InferenceService", "busy-predictor-59f5d6c8bb-7mjqz")
        | _tokens("busy", 29)
        | {'kube_deployment_spec_replicas{namespace="llm",deployment="busy-predictor"}': held((70, 1))},
        "45m",
        (_gone("busy"),),
        doubled=False,
    ),
    Case(
        "TargetsDown", "a Job that is done", _LONG | _owned_by("busy", "Job", "busy-x2k4q") | _tokens("busy", 29), "45m"
    ),
    Case(
        "TargetsDown",
        "no exporter is left: nobody knows",
        _vanishes("busy") | _tokens("busy", 29) | exporter("central", (30, True), (60, None)),
        "60m",
    ),
)
_TICKETS = (
    Case(
        "ReplicaLost",
        "a model that did nothing in its last hour is gone with all that was said of it",
        _LONG | _vanishes("idle"),
        "45m",
        (_vanished("idle", 1),),
        more=(("1600m", (_vanished("idle", 1),)),),
        doubled=False,
    ),
    Case("ReplicaLost", "one that served: TargetsDown pages", _SERVED, "45m"),
    Case("ReplicaLost", "a Job that is done", _LONG | _owned_by("idle", "Job", "idle-x2k4q"), "45m"),
    Case(
        "ReplicaLost",
        "a Deployment that is scaled to zero, or removed, as kube-state-metrics says",
        _LONG
        | _in_kubernetes(_vanishes("idle"))
        | {
            'kube_deployment_spec_replicas{namespace="llm",deployment="idle"}': held((29, 1), (40, 0)),
            'kube_deployment_spec_replicas{namespace="llm",deployment="other"}': held((69, 1)),
        },
        "60m",
    ),
    Case(
        "ReplicaLost",
        "a Deployment that is removed, the only one that kube-state-metrics spoke of",
        _LONG
        | _in_kubernetes(_vanishes("idle"))
        | {'kube_deployment_spec_replicas{namespace="llm",deployment="idle"}': held((29, 1), (1, "stale"))}
        | _ready("n-1", (70, 1)),
        "60m",
    ),
    Case(
        "ReplicaLost",
        "one of which kube-state-metrics never spoke: it has others",
        _LONG
        | _in_kubernetes(_vanishes("idle"))
        | {'kube_deployment_spec_replicas{namespace="web",deployment="other"}': held((70, 1))},
        "60m",
        (_vanished("idle", 1),),
        doubled=False,
    ),
    Case(
        "ReplicaLost",
        "an exporter went with the replicas that it expected; another one has the others",
        exporter("central", (90, True))
        | {
            key.replace("{", '{instance="b:10077",job="llm",', 1): f"{text} stale"
            for key, text in (
                target("chat", "chat-1", (30, "ready"))
                | {'llm_serving_expected_replicas{model_name="chat",role="unified"}': held((30, 2))}
            ).items()
        }
        | exporter("b", (30, True), (60, False))
        | target("chat", "chat-0", (90, "ready")),
        "60m",
        (
            firing(
                "ReplicaLost",
                "warning",
                "node_loss",
                {"model_name": "chat", **_ROLE},
                "chat (unified): 1 of 2 replicas missing",
                "Wanted: 2. Neither ready nor asleep: 1.",
                "find the pod or host that does not come up",
                "var-model_name=chat&var-role=unified",
            ),
        ),
        doubled=False,
    ),
)

CASES = (*_NODES, *_BURNS, *_TICKETS)
EXPORTER_CASES = (
    Case(
        "TargetsDown",
        "the alert of a model that was on it alone carries the node",
        _SILENT,
        "30m",
        (_TARGETS_DOWN,),
        doubled=False,
    ),
    *_VANISHED,
)
