"""What is told of a model that is gone with all that was said of it, and what of one that is not wanted any more."""

from tests.pack.builders import firing, held, target
from tests.pack.cases_exporters import _exporter as exporter
from tests.pack.cases_node_lost import _ready as ready
from tests.pack.promtool import Case, Firing, cases, row

_ROLE = {"role": "unified"}


def _vanishes(model: str, at: int = 30) -> dict[str, str]:
    return {key: f"{text} stale" for key, text in target(model, "", (at, "ready")).items()}


def _place(series: dict[str, str], labels: str) -> dict[str, str]:
    """The same with labels on what is said of who a target is."""
    return {key.replace("{", f"{{{labels},", 1) if "target_info" in key else key: text for key, text in series.items()}


def _in_kubernetes(idle: dict[str, str]) -> dict[str, str]:
    """The model `idle` as a Deployment of its name."""
    return _place(idle, 'namespace="llm",workload="idle",workload_kind="Deployment"')


def _owned_by(model: str, kind: str, pod: str) -> dict[str, str]:
    """A model whose pod something else owns than what kube-state-metrics tells of."""
    return _place(_vanishes(model), f'namespace="llm",workload="{model}",workload_kind="{kind}",pod="{pod}"')


def _gone(model: str) -> Firing:
    return firing(
        "TargetsDown",
        {"model_name": model, **_ROLE},
        f"{model} (unified): 100% of its replicas are gone",
        "Replicas wanted: unknown, known: unknown. It served, and no exporter finds any of them any more.",
    )


def _vanished(model: str, count: int) -> Firing:
    return firing(
        "ReplicaLost",
        {"model_name": model, **_ROLE},
        f"{model} (unified): {count} replicas missing",
        f"Wanted: unknown. Neither ready nor asleep: {count}.",
    )


def _tokens(model: str, minutes: int) -> dict[str, str]:
    labels = f'target="{model}-0",model_name="{model}",engine="0",role="unified"'
    return {f"llm_serving_decode_tokens_total{{{labels}}}": f"0+600x{minutes} stale"}


def _replaced(then: tuple[int, bool | None]) -> dict[str, str]:
    """Of three replicas, which `old` has expected until minute 60, two are taken away at minute 90. `then`: whether `old` answers; None:
    it is not asked any more. `new` is there instead, and expects none."""
    found = exporter("old", (60, True), then) | exporter("new", (60, None), (61, True))
    wanted = {'llm_serving_expected_replicas{model_name="chat",role="unified"}': held((60, 3))}
    for number in range(3):
        name = f"chat-{number}"
        said = target("chat", name, (60, "ready")) | (wanted if number == 0 else {})
        ready = target("chat", name, (30 if number else 61, "ready"))
        for instance, series, text in (
            ("old", said, "{} stale"),
            ("new", ready, "_x60 {} stale" if number else "_x60 {}"),
        ):
            who = f'{{instance="{instance}:10077",job="llm",'
            found |= {key.replace("{", who, 1): text.format(values) for key, values in series.items()}
    return found


_TWO_OF_THREE = firing(
    "ReplicaLost",
    {"model_name": "chat", **_ROLE},
    "chat (unified): 2 of 3 replicas missing",
    "Wanted: 3. Neither ready nor asleep: 2.",
)
_LONG = exporter("central", (1800, True))
_SERVED = _LONG | _vanishes("busy") | _tokens("busy", 29)
EXPORTER_CASES = (
    *cases(
        "TargetsDown",
        row(
            "a model that served is gone with all that was said of it: until it is back, also after 26 hours",
            _SERVED,
            {"45m": _gone("busy"), "1600m": _gone("busy")},
            doubled=False,
        ),
        row("one that did nothing in its last hour", _LONG | _vanishes("idle"), "45m"),
        row(
            "one that is back under other names",
            _SERVED
            | {
                key.replace("busy-0", "busy-1"): "_x33 "
                + held((40, 1 if "ready" in key or "info" in key or "_up" in key else 0))
                for key in target("busy", "", (40, "ready"))
            },
            "45m",
        ),
        row(
            "one that is retired until a moment",
            _SERVED,
            {"45m": (), "120m": _gone("busy")},
            doubled=False,
            rules="retired",
        ),
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
    *cases(
        "TargetsDown",
        row(
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
        row(
            "an InferenceService is gone, and kube-state-metrics says that what it made is wanted",
            _LONG
            | _owned_by("busy", "InferenceService", "busy-predictor-59f5d6c8bb-7mjqz")
            | _tokens("busy", 29)
            | {'kube_deployment_spec_replicas{namespace="llm",deployment="busy-predictor"}': held((70, 1))},
            {"45m": _gone("busy")},
            doubled=False,
        ),
        row("a Job that is done", _LONG | _owned_by("busy", "Job", "busy-x2k4q") | _tokens("busy", 29), "45m"),
        row(
            "no exporter is left: nobody knows",
            _vanishes("busy") | _tokens("busy", 29) | exporter("central", (30, True), (60, None)),
            "60m",
        ),
    ),
)
CASES = cases(
    "ReplicaLost",
    row(
        "a model that did nothing in its last hour is gone with all that was said of it",
        _LONG | _vanishes("idle"),
        {"45m": _vanished("idle", 1), "1600m": _vanished("idle", 1)},
        doubled=False,
    ),
    row("one that served: TargetsDown pages", _SERVED, "45m"),
    row("a Job that is done", _LONG | _owned_by("idle", "Job", "idle-x2k4q"), "45m"),
    row(
        "a Deployment that is scaled to zero, or removed, as kube-state-metrics says",
        _LONG
        | _in_kubernetes(_vanishes("idle"))
        | {
            'kube_deployment_spec_replicas{namespace="llm",deployment="idle"}': held((29, 1), (40, 0)),
            'kube_deployment_spec_replicas{namespace="llm",deployment="other"}': held((69, 1)),
        },
        "60m",
    ),
    row(
        "a Deployment that is removed, the only one that kube-state-metrics spoke of",
        _LONG
        | _in_kubernetes(_vanishes("idle"))
        | {'kube_deployment_spec_replicas{namespace="llm",deployment="idle"}': held((29, 1), (1, "stale"))}
        | ready("n-1", (70, 1)),
        "60m",
    ),
    row(
        "one of which kube-state-metrics never spoke: it has others",
        _LONG
        | _in_kubernetes(_vanishes("idle"))
        | {'kube_deployment_spec_replicas{namespace="web",deployment="other"}': held((70, 1))},
        {"60m": _vanished("idle", 1)},
        doubled=False,
    ),
    row(
        "the exporter's pod is replaced by one that expects none of its replicas, and most of them are taken away",
        _replaced((61, None)),
        {"80m": (), "100m": (), "110m": ()},
        doubled=False,
    ),
    row(
        "the same, while somebody still asks the one before: it is down, and not replaced",
        _replaced((61, False)),
        {"80m": (), "110m": _TWO_OF_THREE},
        doubled=False,
    ),
    row(
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
        {
            "60m": firing(
                "ReplicaLost",
                {"model_name": "chat", **_ROLE},
                "chat (unified): 1 of 2 replicas missing",
                "Wanted: 2. Neither ready nor asleep: 1.",
            )
        },
        doubled=False,
    ),
)
