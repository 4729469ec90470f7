"""When the alerts about exporters that are gone, a fleet that nobody reaches and rules that are not evaluated fire and when they do not."""

from tests.pack.builders import EVERY_ALERT, NOTHING, Grows, counter, firing, held, target
from tests.pack.promtool import Case, Firing, Kind, Story, cases, row, together

# --- ExporterAbsent: none at all, for 10m; critical. Some of several, or a shard, for 5m; warning ------------------------------------------

_UNSEEN = "Nothing is seen of the servers that they read, and no alert about those can fire."


def _none(where: str = "", **labels: str) -> Firing:
    return firing(
        "ExporterAbsent",
        labels,
        f"{where}no llm-serving-exporter is scraped",
        "No exporter is scraped any more: every other alert of this pack is blind.",
        severity="critical",
        rules="exporter_clusters" if labels else EVERY_ALERT,
    )


def _some(count: int, job: str, *silent: str) -> Firing:
    names = "".join(f" {name}" for name in silent)
    said = f"{_UNSEEN} Do not answer:{names}."
    summary = f"{count} exporters of job {job} are gone"
    return firing("ExporterAbsent", {"job": job}, summary, said, severity="warning")


def _exporter(
    name: str, *spans: tuple[int, bool | None], job: str = "llm", mode: str = "central", node: str = "", **labels: str
) -> dict[str, str]:
    """By (samples, whether it answers); None: Prometheus does not know it any more."""
    of = ",".join(f'{key}="{text}"' for key, text in {"instance": f"{name}:10077", "job": job, **labels}.items())
    there, up, shown = [], [], False
    for samples, answers in spans:
        gone = f"stale {NOTHING}x{samples - 1}" if samples > 1 else "stale"
        there.append(held((samples, 1)) if answers else gone if shown else f"{NOTHING}x{samples}")
        up.append(held((samples, float(answers))) if answers is not None else gone)
        shown = bool(answers)
    return {
        f'llm_serving_exporter_build_info{{{of},version="1.0.0"}}': " ".join(there),
        f'llm_serving_exporter_mode_info{{{of},mode="{mode}",node="{node}"}}': " ".join(there),
        f"up{{{of}}}": " ".join(up),
    }


_ABSENT = cases(
    "ExporterAbsent",
    row(
        "one of a pair of Prometheus is cut off, and one store holds what both have scraped",
        {
            f'{key[:-1]},replica="{replica}"}}': text
            for replica, answers in (("a", (60, True)), ("b", (20, True)))
            for key, text in _exporter("gpu-1", answers, (40, replica == "a"), mode="node", node="n-1").items()
        },
        "40m",
        doubled=False,
        kinds=(Kind.BELOW,),
    ),
    row(
        "no exporter from minute 5 to 29",
        _exporter("gpu-1", (5, True), (25, None), (20, True)),
        {"14m": (), "16m": _none(), "40m": ()},
        kinds=(Kind.FIRES, Kind.NOT_YET, Kind.RECOVERY),
    ),
    row("there never was one", {"up": "1+0x20"}, {"15m": _none()}, doubled=False),
    row(
        "all of one cluster do not answer, those of another one do",
        _exporter("eu-1", (10, True), (30, False), cluster="eu") | _exporter("us-1", (40, True), cluster="us"),
        {"30m": _none("eu ", cluster="eu")},
        doubled=False,
        rules="exporter_clusters",
    ),
    row(
        "all were in the pods of engines that were scaled to zero",
        _exporter("pod-1", (10, True), (40, None), mode="sidecar"),
        "40m",
        doubled=False,
        kinds=(Kind.BELOW,),
    ),
)
_SOME_GONE = together(
    "ExporterAbsent",
    "some of several",
    ("15m", "24m", "31m", "59m"),
    Story(
        (Kind.FIRES, Kind.NOT_YET, Kind.RECOVERY),
        # one does not answer from minute 10 to 39
        _exporter("gpu-1", (70, True), job="silent")
        | _exporter("gpu-2", (10, True), (30, False), (30, True), job="silent"),
        {moment: _some(1, "silent", "gpu-2:10077") for moment in ("24m", "31m")},
    ),
    Story(
        (Kind.FIRES,),
        # one is not even known any more
        _exporter("pool-1", (70, True), job="pool") | _exporter("pool-2", (12, True), (58, None), job="pool"),
        {moment: _some(1, "pool") for moment in ("31m", "59m")},
    ),
    # each is replaced within two minutes, under another name
    Story(
        (Kind.RESTART, Kind.BELOW),
        _exporter("roll-1", (20, True), (50, None), job="roll")
        | _exporter("roll-2", (24, True), (46, None), job="roll")
        | _exporter("roll-3", (22, None), (48, True), job="roll")
        | _exporter("roll-4", (26, None), (44, True), job="roll"),
    ),
    # in the pod of an engine that is gone
    Story((Kind.BELOW,), _exporter("pod-1", (10, True), (20, False), (40, None), job="pods", mode="sidecar")),
    doubled=False,
)


def _held(shard: int, instance: str, *spans: tuple[int, float | str]) -> dict[str, str]:
    """What the exporter of a shard says of each of four."""
    return {
        f'llm_serving_exporter_shard_held{{shard="{number}",instance="{instance}"}}': held(
            *((samples, said if isinstance(said, str) else float(number == shard)) for samples, said in spans)
        )
        for number in range(1, 5)
    }


def _missing(shard: str) -> Firing:
    summary = f"shard {shard}: no exporter reads it"
    return firing("ExporterAbsent", {"shard": shard}, summary, _UNSEEN, severity="warning")


_SHARDS = together(
    "ExporterAbsent",
    "four exporters share the targets",
    ("8m", "12m", "19m", "37m"),
    Story(
        (Kind.FIRES, Kind.NOT_YET, Kind.RECOVERY, Kind.BELOW, Kind.RESTART),
        # the third is gone from minute 5 to 20; the second is replaced within two, at minute 30
        _exporter("a", (50, True))
        | _held(1, "a:10077", (50, 1))
        | _held(2, "b:10077", (31, 1), (1, "stale"), (1, NOTHING), (17, 1))
        | _held(3, "c:10077", (5, 1), (1, "stale"), (14, NOTHING), (30, 1))
        | _held(4, "d:10077", (50, 1)),
        {"12m": _missing("3"), "19m": _missing("3")},
    ),
    doubled=False,
)
_DAEMONSET = Case(
    "ExporterAbsent",
    "a DaemonSet is to have three, and two are scraped; one node was taken away an hour ago",
    _exporter("n-1", (60, True), mode="node", node="n-1")
    | _exporter("n-2", (60, True), mode="node", node="n-2")
    | _exporter("n-3", (20, True), (40, None), mode="node", node="n-3")
    | {
        'kube_daemonset_status_desired_number_scheduled{namespace="monitoring",daemonset="llm-serving-exporter"}': held(
            (20, 3), (20, 2), (20, 3)
        )
    },
    {
        "38m": (),
        "50m": firing("ExporterAbsent", {}, "1 exporters of a DaemonSet are not scraped", _UNSEEN, severity="warning"),
    },
    doubled=False,
    kinds=(Kind.FIRES, Kind.BELOW),
)

# --- FleetUnreachable: over half of a fleet's replicas, of several models or nodes, for 2m; critical ---------------------------------------


def _fleet(share: str, models: str) -> Firing:
    return firing(
        "FleetUnreachable",
        {},
        f"{share} of all replicas cannot be reached",
        f"Most replicas of several models or nodes went at once: {models}. That is the network, what they share, or the exporters' view of them. "
        "Alerts about single models and nodes of this fleet are not told while this page is open.",
    )


def _served(*fleets: tuple[str, int, int, str], lost: int = 15, back: int = 20) -> dict[str, str]:
    """Models by (name, replicas, how many of them go, role); those that go do so after `lost` minutes, for `back`."""
    found = _exporter("central", (60, True))
    for model, replicas, goes, role in fleets:
        for number in range(replicas):
            states = (
                ((lost, "ready"), (back, "down"), (60 - lost - back, "ready")) if number < goes else ((60, "ready"),)
            )
            found |= target(model, f"{model}-{number}", *states, role=role)
    return found


_UNREACHABLE = cases(
    "FleetUnreachable",
    row(
        "three of four replicas, of two models",
        _served(("chat", 2, 2, "unified"), ("embed", 2, 1, "unified"), ("code", 1, 1, "unified")),
        {"15m": (), "20m": _fleet("80%", "chat, code"), "45m": ()},
        kinds=(Kind.FIRES, Kind.NOT_YET, Kind.RECOVERY, Kind.RESTART),
    ),
    row(
        "prefill and decode of one model",
        _served(("split", 2, 2, "prefill"), ("split-decode", 2, 2, "decode")),
        {"20m": _fleet("100%", "split, split-decode")},
        kinds=(Kind.FIRES, Kind.ROLES),
    ),
    row(
        "one model of two, which had most of the replicas: that is TargetsDown's",
        _served(("chat", 4, 4, "unified"), ("embed", 2, 0, "unified")),
        "20m",
        kinds=(Kind.BELOW,),
    ),
    row(
        "two small models of a larger fleet",
        _served(("chat", 6, 0, "unified"), ("embed", 1, 1, "unified"), ("code", 1, 1, "unified")),
        "20m",
        kinds=(Kind.BELOW,),
    ),
    row(
        "two models that have just been configured and never answered",
        _exporter("central", (60, True))
        | {key: text for name in ("chat", "embed") for key, text in target(name, "", (40, "down")).items()},
        "30m",
        kinds=(Kind.FIRST_WEEK,),
    ),
    row("no target at all", _exporter("central", (60, True)), "30m", kinds=(Kind.ABSENT,)),
)

CASES = (*_ABSENT, _SOME_GONE, _SHARDS, _DAEMONSET, *_UNREACHABLE)


# --- when the alert on rules that are not evaluated as they should be fires and when it does not ---


MINUTES = 45
KV, LOAD = "llm-serving.kv.alerts", "llm-serving.node-loss.load"


def _of_group(name: str, host: str, group: str, values: str) -> dict[str, str]:
    """A series by group as each server writes it: with the file before the group, or without."""
    label = f'group="{group}"' if name.startswith("vmalert") else f'rule_group="/etc/rules/r.yml;{group}"'
    return {f'{name}{{instance="{host}",job="rules",{label}}}': values}


def _firing(host: str, count: int, groups: str) -> tuple[Firing]:
    return (
        firing(
            "RulesFailing",
            {"instance": host},
            f"{host}: groups of rules that fail or come too late: {count}",
            f"Again and again within the last 10m: {groups} - what these groups record is old or missing, and what they alert on is found late or "
            "not at all.",
        ),
    )


# each minute until the thirtieth; the first two samples are there at minute 1
_AGAIN, _GOOD = counter(Grows(30, 1), Grows(15, 0)), counter(Grows(MINUTES, 0))
_FAILED, _MISSED = "prometheus_rule_evaluation_failures_total", "prometheus_rule_group_iterations_missed_total"

_RULES = together(
    "RulesFailing",
    "groups that fail or come too late",
    ("14m", "20m", "41m"),
    Story(
        (Kind.FIRES, Kind.NOT_YET, Kind.RECOVERY),
        {
            # one group both fails and comes late, another is late
            **_of_group(_FAILED, "prometheus:9090", LOAD, _AGAIN),
            **_of_group(_MISSED, "prometheus:9090", LOAD, _AGAIN),
            **_of_group(_MISSED, "prometheus:9090", KV, _AGAIN),
            **_of_group(_FAILED, "prometheus:9090", KV, _GOOD),
            # another team's
            **_of_group(_FAILED, "prometheus:9090", "kubernetes.rules", _AGAIN),
        },
        {"20m": _firing("prometheus:9090", 2, f"/etc/rules/r.yml;{KV} /etc/rules/r.yml;{LOAD}")},
    ),
    Story(
        (Kind.FIRES,),
        {
            **_of_group(f"cortex_{_FAILED}", "mimir-ruler-0:8080", KV, _AGAIN),
            **_of_group(f"cortex_{_MISSED}", "mimir-ruler-0:8080", KV, _GOOD),
        },
        {"20m": _firing("mimir-ruler-0:8080", 1, f"/etc/rules/r.yml;{KV}")},
    ),
    # 1.79 says whether a rule fails, newer ones count
    Story(
        (Kind.FIRES,),
        _of_group("vmalert_recording_rules_error", "vmalert:8880", LOAD, held((30, 1), (15, 0))),
        {"20m": _firing("vmalert:8880", 1, LOAD)},
    ),
    Story(
        (Kind.FIRES,),
        _of_group("vmalert_alerting_rules_errors_total", "vmalert-new:8880", KV, _AGAIN),
        {"20m": _firing("vmalert-new:8880", 1, KV)},
    ),
    # a single failure, and a single turn that was missed
    Story(
        (Kind.BELOW, Kind.LOW_TRAFFIC),
        {
            **_of_group(_FAILED, "once:9090", KV, counter(Grows(5, 0), Grows(1, 1), Grows(39, 0))),
            **_of_group(_MISSED, "once:9090", KV, counter(Grows(5, 0), Grows(1, 1), Grows(39, 0))),
        },
    ),
    # the server is restarted, its counters of old failures with it
    Story(
        (Kind.RESTART,),
        _of_group(_FAILED, "again:9090", KV, counter(Grows(5, 0), Grows(40, 0, reborn=True), start=900)),
    ),
    # rules of others only
    Story((Kind.ABSENT,), _of_group(_FAILED, "others:9090", "kubernetes.rules", _AGAIN)),
    doubled=False,
    records=False,
)

EVALUATION_CASES: tuple[Case, ...] = (_RULES,)
