"""When the alert on signals that a workload has lost fires and when it does not.

Rules are evaluated every minute here, so that six moments are six minutes and not half an hour. Of signals that
are available nothing is said, but for some stories with an exporter of an older version, which has a line for each.
"""

from itertools import chain

from tests.pack.builders import NOTHING, firing, held
from tests.pack.promtool import Case, Firing, Kind, Story, together

# --- SignalLost: replicas of a workload lack what all had for half an hour within the memory, at half of ten minutes; for 10m; warning ------------------------------

OLD, NEW = "0.32.0", "0.33.0"
KV, STEPS, TTFT = "kv_cache_usage_ratio", "engine_steps_total", "slo_ttft"
MINUTES = 90
# one thing happens at minute 20, another one at 60
MOMENTS = ("32m", "45m", "62m", "85m")
_AT, _END = 20, 60


def _spans(*spans: tuple[int, str | None], shown: str) -> str:
    """1 while it is that, 0 while it is something else, and nothing while it is not there: by (samples, what it is)."""
    parts, there = [], False
    for samples, now in spans:
        if now is not None:
            parts.append(held((samples, float(now == shown))))
        else:
            # a series that ends is marked so at the next scrape
            parts.append(" ".join(["stale"] + ["_"] * (samples - 1)) if there else f"{NOTHING}x{samples}")
        there = now is not None
    return " ".join(parts)


def _replica(
    model: str,
    name: str,
    *spans: tuple[int, str | None],
    version: str = OLD,
    runtime: str = "vllm",
    workload: str | None = None,
    kind: str = "Deployment",
    role: str = "unified",
    exporter: str = "",
) -> dict[str, str]:
    """A target of a workload that is called as its model unless it is named, by (minutes, state or None while it is not there)."""
    spans = spans or ((MINUTES, "ready"),)
    workload = model if workload is None else workload
    who = f'{exporter}target="{model}-{name}"'
    info = f'{who},runtime="{runtime}",version="{version}",model_name="{model}",role="{role}"'
    if workload:
        info += f',namespace="llm",workload="{workload}",workload_kind="{kind}"'
    there = tuple((minutes, state and "there") for minutes, state in spans)
    return {
        f"llm_serving_target_info{{{info}}}": _spans(*there, shown="there"),
        **{
            f'llm_serving_target_state{{{who},state="{state}"}}': _spans(*spans, shown=state)
            for state in ("ready", "unknown", "down")
        },
    }


def _absent(
    model: str, name: str, signal: str, *spans: tuple[int, str | None], lines: bool = False, exporter: str = ""
) -> dict[str, str]:
    """The line of a signal by (minutes, reason), None or "" while it is available. `lines`: whether it has a line then, too."""
    found = {}
    for reason in dict.fromkeys(reason for _, reason in spans if reason or (lines and reason == "")):
        own = tuple((minutes, "absent" if now == reason else None) for minutes, now in spans)
        key = f'llm_serving_signal_available{{{exporter}target="{model}-{name}",signal="{signal}",reason="{reason}"}}'
        # 1 where it is available
        found[key] = _spans(*own, shown="" if reason else "absent")
    return found


def _since(minute: int, reason: str, until: int = MINUTES) -> tuple[tuple[int, str | None], ...]:
    """Available before and afterwards."""
    spans: tuple[tuple[int, str | None], ...] = ((minute, None), (until - minute, reason), (MINUTES - until, None))
    return tuple((minutes, now) for minutes, now in spans if minutes)


def _from(minute: int) -> tuple[tuple[int, str | None], ...]:
    return (minute, None), (MINUTES - minute, "ready")


def _until(minute: int) -> tuple[tuple[int, str | None], ...]:
    return (minute, "ready"), (MINUTES - minute, None)


def _all(*parts: dict[str, str]) -> dict[str, str]:
    return dict(chain.from_iterable(part.items() for part in parts))


def _kube(kind: str, name: str, *spans: tuple[int, float | str]) -> dict[str, str]:
    # of a scrape without honor_labels
    series = {"deployment": "kube_deployment_spec_replicas", "statefulset": "kube_statefulset_replicas"}[kind]
    labels = f'namespace="monitoring",exported_namespace="llm",{kind}="{name}"'
    return {f"{series}{{{labels}}}": held(*spans)}


def _lost(
    model: str, count: int, replicas: int, *lacks: tuple[str, str], runtime: str = "vllm", workload: str | None = None
) -> tuple[Firing]:
    """`lacks`: a version and what it lacks in words."""
    workload = model if workload is None else workload
    said = "".join(f"version {version} lacks {what}; " for version, what in lacks)
    return (
        firing(
            "SignalLost",
            {
                "model_name": model,
                "role": "unified",
                "runtime": runtime,
                **({"workload": workload} if workload else {}),
            },
            f"{model} (unified), {runtime}{f', workload {workload}' if workload else ''}: signals lost that all replicas had: {count}",
            f"Of {replicas} replicas: {said}alerts and panels that depend on them are silent, not green.",
        ),
    )


def _again(absent: int, there: int, minutes: int) -> tuple[tuple[int, str | None], ...]:
    """Absent and available by turns, at the end whatever is left."""
    turn: tuple[tuple[int, str | None], ...] = ((absent, "not_exported"), (there, None))
    turns, rest = divmod(minutes, absent + there)
    return (*turn * turns, *(((rest, None),) if rest else ()))


_KV_1, _KV_2 = f"{KV} (not_exported) on 1", f"{KV} (not_exported) on 2"
_GONE = _since(_AT, "not_exported")


def _one(model: str, *spans: tuple[int, str | None], **of_replica: str) -> dict[str, str]:
    """A replica that loses a signal at minute 20 for good."""
    return _all(_replica(model, "0", *spans, **of_replica), _absent(model, "0", KV, *_GONE))


_UPGRADES = together(
    "SignalLost",
    "upgrades",
    MOMENTS,
    Story(
        (Kind.FIRES, Kind.NOT_YET),
        # all pods are replaced by pods under new names, whose version lacks two signals; a third was never there
        _all(
            *(_replica("all", name, *_until(_AT)) for name in ("a", "b")),
            *(_absent("all", name, "preemptions_total", (_AT, "not_exported")) for name in ("a", "b")),
            *(_replica("all", name, *_from(_AT), version=NEW) for name in ("c", "d")),
            *(
                _absent("all", name, signal, (_AT, None), (MINUTES - _AT, "not_exported"))
                for name in ("c", "d")
                for signal in (KV, STEPS, "preemptions_total")
            ),
        ),
        {
            moment: _lost("all", 2, 2, (NEW, f"{STEPS} (not_exported) on 2, {_KV_2}"))
            for moment in MOMENTS[1:]
        },
    ),
    Story(
        (Kind.FIRES, Kind.RECOVERY),
        # half of them, until the old version is back; the exporter is of an older version
        _all(
            *(_replica("half", name) for name in ("a", "b")),
            *(_absent("half", name, KV, (MINUTES, ""), lines=True) for name in ("a", "b")),
            *(_replica("half", name, *_until(_AT)) for name in ("c", "d")),
            *(_absent("half", name, KV, (_AT, ""), (MINUTES - _AT, None), lines=True) for name in ("c", "d")),
            *(_replica("half", name, (_AT, None), (_END - _AT, "ready"), (MINUTES - _END, None), version=NEW) for name in ("e", "f")),
            *(_absent("half", name, KV, (_AT, None), (_END - _AT, "not_exported"), (MINUTES - _END, None)) for name in ("e", "f")),
            *(_replica("half", name, *_from(_END)) for name in ("g", "h")),
        ),
        {"45m": _lost("half", 1, 4, (NEW, _KV_2)), "62m": _lost("half", 1, 4, (NEW, _KV_2))},
    ),
    Story(
        (Kind.FIRES,),
        # one of eight, on a host without Kubernetes
        _all(*(_replica("eight", name, workload="") for name in "abcdefgh"), _absent("eight", "a", KV, *_GONE)),
        {moment: _lost("eight", 1, 8, (OLD, _KV_1), workload="") for moment in MOMENTS[1:]},
    ),
    Story(
        (Kind.FIRES,),
        # two runtimes under one name: what SGLang never had is not vLLM's, and what vLLM loses is not SGLang's
        _all(
            _one("both", workload="both-v"),
            _replica("both", "1", runtime="sglang", workload="both-s"),
            _absent("both", "1", KV, (MINUTES, "not_exported")),
            _absent("both", "1", STEPS, (MINUTES, "not_exported")),
        ),
        {moment: _lost("both", 1, 1, (OLD, _KV_1), workload="both-v") for moment in MOMENTS[1:]},
    ),
    Story(
        (Kind.FIRES,),
        # lost in four of every six minutes
        _all(
            _replica("flaps", "0"),
            _absent("flaps", "0", KV, (_AT, None), *_again(4, 2, MINUTES - _AT)),
        ),
        {moment: _lost("flaps", 1, 1, (OLD, _KV_1)) for moment in MOMENTS[1:]},
    ),
    # the same, and nothing is lost
    Story(
        (Kind.BELOW,),
        _all(
            _replica("mixed", "0", workload=""),
            _replica("mixed", "1", runtime="sglang", workload=""),
            _absent("mixed", "1", KV, *((MINUTES, "not_exported"),)),
        ),
    ),
    rules="signals",
)  # fmt: skip
_SILENT = together(
    "SignalLost",
    "what is not lost",
    MOMENTS,
    Story((Kind.BELOW,), _all(_replica("never", "0"), _absent("never", "0", STEPS, (MINUTES, "not_exported")))),
    Story((Kind.LOW_TRAFFIC,), _all(_replica("idle", "0"), _absent("idle", "0", STEPS, *_since(_AT, "idle")))),
    Story(
        (Kind.LOW_TRAFFIC,),
        # a fleet that never had work, and then pods of a version that does not say it at all
        _all(_replica("calm", "0"), _absent("calm", "0", STEPS, (_AT, "idle"), (MINUTES - _AT, "not_exported"))),
    ),
    Story((Kind.RESTART,), _all(_replica("young", "0"), _absent("young", "0", STEPS, *_since(_AT, "warming_up")))),
    Story(
        (Kind.RESTART,),
        # pods that start one after the other, each without a signal in its first minute
        _all(
            *(_replica("rolls", str(number)) for number in range(4)),
            *(
                _absent("rolls", str(number), KV, (_AT + 4 * number, None), *_again(1, 15, MINUTES - _AT - 4 * number))
                for number in range(4)
            ),
        ),
    ),
    # somebody took the threshold out of the configuration; prices have an alert of their own
    Story((Kind.BELOW,), _all(_replica("unset", "0"), _absent("unset", "0", TTFT, *_since(_AT, "not_configured")))),
    Story((Kind.BELOW,), _all(_replica("free", "0"), _absent("free", "0", "cost_usd_total", *_since(_AT, "no_price")))),
    Story((Kind.ROLES,), _all(_replica("split", "0"), _absent("split", "0", TTFT, *_since(_AT, "other_role")))),
    Story(
        (Kind.BELOW,),
        # whole for three minutes only
        _all(_replica("late", "0"), _absent("late", "0", KV, (17, "not_exported"), (3, None), (MINUTES - 20, "not_exported"))),
    ),
    # what is down has its own alert
    Story(
        (Kind.BELOW,),
        _all(
            _replica("down", "0", (_AT, "ready"), (MINUTES - _AT, "down")),
            _absent("down", "0", KV, *_since(_AT, "target_down")),
        ),
    ),
    Story((Kind.ABSENT,), _replica("quiet", "0")),
    rules="signals",
)  # fmt: skip


def _seen_by(number: int, *spans: tuple[int, str | None], version: str = "1.0.0", last: str = "") -> dict[str, str]:
    """An exporter of its own for a target, which may be of another version after the gap in its spans."""
    spans = spans or ((MINUTES, "there"),)
    own = f'{_exporter(number)}python_version="3.11.2"'
    first = spans if not last else (*spans[:1], (MINUTES - spans[0][0], None))
    found = {f'llm_serving_exporter_build_info{{{own},version="{version}"}}': _spans(*first, shown="there")}
    if last:
        again = ((MINUTES - spans[-1][0], None), spans[-1])
        found[f'llm_serving_exporter_build_info{{{own},version="{last}"}}'] = _spans(*again, shown="there")
    return found


def _exporter(number: int) -> str:
    return f'instance="10.0.0.{number}:10077",job="llm",'


_AWAY: tuple[tuple[int, str | None], ...] = ((30, "ready"), (3, None), (MINUTES - 33, "ready"))
_AWAY_LOST: tuple[tuple[int, str | None], ...] = (
    (_AT, None), (30 - _AT, "not_exported"), (3, None), (MINUTES - 33, "not_exported"),
)  # fmt: skip
_ONE = _exporter(1)
_READERS = together(
    "SignalLost",
    "exporters",
    MOMENTS,
    Story(
        (Kind.FIRES,),
        # its exporter starts anew at minute 30, as another version
        _all(
            _seen_by(1, *_AWAY, last="1.1.0"),
            _replica("again", "0", *_AWAY, exporter=_ONE),
            _absent("again", "0", KV, *_AWAY_LOST, exporter=_ONE),
        ),
        {moment: _lost("again", 1, 1, (OLD, _KV_1)) for moment in MOMENTS[1:]},
    ),
    Story(
        (Kind.BELOW, Kind.RESTART),
        # the newer version knows of a signal that the older did not
        _all(
            _seen_by(2, *_AWAY, last="1.1.0"),
            _replica("more", "0", *_AWAY, exporter=_exporter(2)),
            _absent("more", "0", KV, *_since(33, "not_exported"), exporter=_exporter(2)),
        ),
    ),
    Story(
        (Kind.BELOW,),
        # of two exporters one has no access to the GPUs; the other reads the signal
        _all(
            *(_seen_by(number) for number in (3, 4)),
            *(_replica("pair", "0", exporter=_exporter(number)) for number in (3, 4)),
            _absent("pair", "0", "bandwidth_ceiling_ratio_gpm", *_since(_AT, "gpus_unknown"), exporter=_exporter(3)),
        ),
    ),
    Story(
        (Kind.FIRES,),
        # one of two cannot reach it, and the other says what is lost
        _all(
            *(_seen_by(number) for number in (5, 6)),
            _replica("one", "0", exporter=_exporter(5)),
            _absent("one", "0", KV, *_GONE, exporter=_exporter(5)),
            _replica("one", "0", (_AT, "ready"), (MINUTES - _AT, "down"), exporter=_exporter(6)),
            _absent("one", "0", KV, *_since(_AT, "target_down"), exporter=_exporter(6)),
        ),
        {moment: _lost("one", 1, 1, (OLD, _KV_1)) for moment in MOMENTS[1:]},
    ),
    Story(
        (Kind.FIRES, Kind.ONE_REPLICA),
        # it answers with a page that nobody can read, such as that of a login
        _all(
            _replica("login", "0", (_AT, "ready"), (MINUTES - _AT, "unknown")),
            *(_absent("login", "0", signal, *_since(_AT, "target_down")) for signal in (KV, STEPS)),
        ),
        {
            moment: _lost("login", 2, 1, (OLD, f"{STEPS} (target_down) on 1, {KV} (target_down) on 1"))
            for moment in MOMENTS[1:]
        },
    ),
    doubled=False,
    rules="signals",
)  # fmt: skip
_THERE: tuple[int, str | None] = (_AT, "")
_OLDER = {"version": "0.9.0"}
# exporters of an older version, which has a line of 1 for what is available, beside others
_MIXED = together(
    "SignalLost",
    "exporters of two versions",
    MOMENTS,
    Story(
        (Kind.FIRES,),
        # both read it, and both say that it is gone
        _all(
            _seen_by(1, **_OLDER),
            _seen_by(2),
            *(_replica("both", "0", exporter=_exporter(number)) for number in (1, 2)),
            _absent("both", "0", KV, _THERE, (MINUTES - _AT, "not_exported"), lines=True, exporter=_exporter(1)),
            _absent("both", "0", KV, *_GONE, exporter=_exporter(2)),
        ),
        {moment: _lost("both", 1, 1, (OLD, _KV_1)) for moment in MOMENTS[1:]},
    ),
    Story(
        (Kind.BELOW,),
        # only the newer one lacks it
        _all(
            _seen_by(3, **_OLDER),
            _seen_by(4),
            *(_replica("newer", "0", exporter=_exporter(number)) for number in (3, 4)),
            _absent("newer", "0", KV, (MINUTES, ""), lines=True, exporter=_exporter(3)),
            _absent("newer", "0", KV, *_GONE, exporter=_exporter(4)),
        ),
    ),
    Story(
        (Kind.BELOW,),
        # only the older one does
        _all(
            _seen_by(5, **_OLDER),
            _seen_by(6),
            *(_replica("older", "0", exporter=_exporter(number)) for number in (5, 6)),
            _absent("older", "0", KV, _THERE, (MINUTES - _AT, "gpus_unknown"), lines=True, exporter=_exporter(5)),
        ),
    ),
    Story(
        (Kind.FIRES,),
        # each reads a replica of its own; that of the newer one loses it
        _all(
            _seen_by(7, **_OLDER),
            _seen_by(8),
            _replica("parts", "0", exporter=_exporter(7)),
            _absent("parts", "0", KV, (MINUTES, ""), lines=True, exporter=_exporter(7)),
            _replica("parts", "1", exporter=_exporter(8)),
            _absent("parts", "1", KV, *_GONE, exporter=_exporter(8)),
        ),
        {moment: _lost("parts", 1, 2, (OLD, _KV_1)) for moment in MOMENTS[1:]},
    ),
    Story(
        (Kind.BELOW, Kind.RESTART),
        # the lines of an exporter end when it is replaced by a newer one: nothing is lost
        _all(
            _seen_by(9, *_AWAY, last="1.0.0", **_OLDER),
            _replica("calm", "0", *_AWAY, exporter=_exporter(9)),
            *(
                _absent("calm", "0", signal, (30, ""), (MINUTES - 30, None), lines=True, exporter=_exporter(9))
                for signal in (KV, STEPS, TTFT)
            ),
        ),
    ),
    Story(
        (Kind.FIRES,),
        # the same, and half an hour later one is
        _all(
            _seen_by(10, *_AWAY, last="1.0.0", **_OLDER),
            _replica("later", "0", *_AWAY, exporter=_exporter(10)),
            _absent("later", "0", KV, (30, ""), (MINUTES - 30, None), lines=True, exporter=_exporter(10)),
            _absent("later", "0", KV, *_since(_END, "not_exported"), exporter=_exporter(10)),
        ),
        {"85m": _lost("later", 1, 1, (OLD, _KV_1))},
    ),
    doubled=False,
    rules="signals",
)
# until minute 60, when Kubernetes is told otherwise; the pods end three minutes later
_LEAVES = _until(_END + 3)
_FIRST: dict[str, int] = {"45m": 1, "62m": 1}
_ENDS = together(
    "SignalLost",
    "models that go",
    MOMENTS,
    Story((Kind.RECOVERY,), _one("leaves", *_LEAVES), {at: _lost("leaves", 1, 1, (OLD, _KV_1)) for at in _FIRST}),
    Story(
        (Kind.RECOVERY,),
        # under another name, beside kube-state-metrics and without
        _all(
            _one("former", *_LEAVES, workload="engine"),
            _replica("latter", "0", *_from(_END + 3), workload="engine"),
            _absent("latter", "0", KV, (_END + 3, None), (MINUTES - _END - 2, "not_exported")),
        ),
        {at: _lost("former", 1, 1, (OLD, _KV_1), workload="engine") for at in _FIRST},
    ),
    Story(
        (Kind.RECOVERY,),
        _all(
            _one("first", *_LEAVES, workload="server", kind="StatefulSet"),
            _replica("second", "0", *_from(_END + 3), workload="server", kind="StatefulSet"),
            _absent("second", "0", KV, (_END + 3, None), (MINUTES - _END - 2, "not_exported")),
            _kube("statefulset", "server", (MINUTES, 1)),
        ),
        {at: _lost("first", 1, 1, (OLD, _KV_1), workload="server") for at in _FIRST},
    ),
    # scaled to zero: known at once
    Story(
        (Kind.RECOVERY,),
        _all(_one("zero", *_LEAVES), _kube("deployment", "zero", (_END, 1), (MINUTES - _END, 0))),
        {"45m": _lost("zero", 1, 1, (OLD, _KV_1))},
    ),
    Story(
        (Kind.RECOVERY,),
        _all(
            _one("set", *_LEAVES, kind="StatefulSet"),
            _kube("statefulset", "set", (_END, 1), (MINUTES - _END, 0)),
            # another object of that name
            _kube("deployment", "set", (MINUTES, 1)),
        ),
        {"45m": _lost("set", 1, 1, (OLD, _KV_1))},
    ),
    # removed: kube-state-metrics has no line of it any more
    Story(
        (Kind.RECOVERY,),
        _all(_one("removed", *_LEAVES), _kube("deployment", "removed", (_END, 1), (1, "stale"))),
        {at: _lost("removed", 1, 1, (OLD, _KV_1)) for at in _FIRST},
    ),
    # wanted 0 of another kind
    Story(
        (Kind.FIRES,),
        _all(_one("kind"), _kube("statefulset", "kind", (MINUTES, 0))),
        {at: _lost("kind", 1, 1, (OLD, _KV_1)) for at in MOMENTS[1:]},
    ),
    rules="signals",
)
_RETIRED = together(
    "SignalLost",
    "models that the settings say are retired",
    MOMENTS,
    # until minute 58
    Story((Kind.BELOW,), _one("gone"), {"85m": _lost("gone", 1, 1, (OLD, _KV_1))}),
    # that entry is about another role, the next one long over
    Story((Kind.FIRES,), _one("kept"), {moment: _lost("kept", 1, 1, (OLD, _KV_1)) for moment in MOMENTS[1:]}),
    Story((Kind.FIRES,), _one("past"), {moment: _lost("past", 1, 1, (OLD, _KV_1)) for moment in MOMENTS[1:]}),
    rules="signals_retired",
)
# moments of two minutes; the memory reaches back 28 h
_HOURS = 31
_LONG = _HOURS * 30


def _after(moments: int, *, until: int = _LONG) -> tuple[tuple[int, str | None], ...]:
    spans: tuple[tuple[int, str | None], ...] = (
        (moments, None),
        (until - moments, "not_exported"),
        (_LONG - until, None),
    )
    return tuple((samples, now) for samples, now in spans if samples)


def _for_hours(model: str, spans: tuple[tuple[int, str | None], ...]) -> dict[str, str]:
    return _all(_replica(model, "0", (_LONG, "ready")), _absent(model, "0", KV, *spans))


_HORIZON = together(
    "SignalLost",
    "a day later, and beyond the memory",
    ("1h40m", "27h30m", "30h"),
    # whole for an hour; nobody repairs it
    Story(
        (Kind.FIRES, Kind.RECOVERY),
        _for_hours("day", _after(30)),
        {at: _lost("day", 1, 1, (OLD, _KV_1)) for at in ("1h40m", "27h30m")},
    ),
    # whole for four moments, and for eight: a Prometheus that has just begun
    Story((Kind.BELOW,), _for_hours("brief", _after(4))),
    Story((Kind.FIRES,), _for_hours("enough", _after(8)), {at: _lost("enough", 1, 1, (OLD, _KV_1)) for at in ("1h40m", "27h30m")}),
    # repaired after more than an hour
    Story((Kind.RECOVERY,), _for_hours("mended", _after(30, until=70)), {"1h40m": _lost("mended", 1, 1, (OLD, _KV_1))}),
    doubled=False,
    interval="2m",
    rules="signals_long",
)  # fmt: skip

CASES: tuple[Case, ...] = (_UPGRADES, _SILENT, _READERS, _MIXED, _ENDS, _RETIRED, _HORIZON)
