"""When the alerts of check exporter fire and when they do not."""

from tests.pack.builders import NOTHING, Grows, counter, firing, held, target
from tests.pack.promtool import Case, Firing, Kind, Story, together

# --- ConfigReloadFailed: the last reload failed, for 10m; warning -------------------------------------------------------------------------


def _reload(host: str, values: str) -> dict[str, str]:
    # the same exporter under two jobs: one alert
    return {
        f'llm_serving_exporter_config_reload_success{{instance="{host}:10077",job="{job}"}}': values
        for job in ("llm", "pods")
    }


_RELOAD_FAILED = together(
    "ConfigReloadFailed",
    "a file that was refused",
    ("9m", "12m", "40m"),
    Story(
        (Kind.FIRES, Kind.NOT_YET, Kind.RECOVERY),
        _reload("gpu-1", held((20, 0), (25, 1))),
        {
            "12m": firing(
                "ConfigReloadFailed",
                {"instance": "gpu-1:10077"},
                "Exporter gpu-1:10077: its configuration was not reloaded",
                "The file on disk is not what runs: the last reload was refused, and the exporter keeps the previous one.",
            )
        },
    ),
    Story((Kind.BELOW,), _reload("gpu-2", held((45, 1)))),
    # refused, and started anew before ten minutes were over
    Story((Kind.RESTART,), _reload("gpu-3", f"{held((5, 0))} stale 1+0x38")),
    Story((Kind.ABSENT,), _reload("gpu-4", f"{held((5, 0))} stale")),
    doubled=False,
    records=False,
)


# --- NotificationsFailing: Alertmanager cannot deliver, for 10m; warning -----------------------------------------------------------------


def _failed(host: str, values: str, integration: str = "pagerduty") -> dict[str, str]:
    # newer versions say why: two reasons are one integration
    labels = f'instance="{host}:9093",job="alertmanager",integration="{integration}"'
    return {
        f'alertmanager_notifications_failed_total{{{labels},reason="{reason}"}}': text
        for reason, text in (("serverError", values), ("other", counter(Grows(45, 0))))
    }


def _sent(host: str, a_minute: float, integration: str = "pagerduty") -> dict[str, str]:
    labels = f'instance="{host}:9093",job="alertmanager",integration="{integration}"'
    return {f"alertmanager_notifications_total{{{labels}}}": counter(Grows(45, a_minute))}


_NOTIFICATIONS = together(
    "NotificationsFailing",
    "pages that cannot be delivered",
    ("10m", "13m", "40m"),
    Story(
        (Kind.FIRES, Kind.NOT_YET, Kind.RECOVERY),
        # two of eight a minute until minute 20; the first two samples are there at minute 1
        {**_failed("am-0", counter(Grows(20, 2), Grows(25, 0))), **_sent("am-0", 8)},
        {
            "13m": firing(
                "NotificationsFailing",
                {"instance": "am-0:9093", "integration": "pagerduty"},
                "Alertmanager am-0:9093 cannot deliver by pagerduty",
                "25% of its notifications failed within 5m, and of those before. Pages may not arrive; this one came by another way.",
            )
        },
    ),
    # one that failed is retried, and five minutes later forgotten
    Story(
        (Kind.BELOW, Kind.LOW_TRAFFIC),
        {**_failed("am-1", counter(Grows(5, 0), Grows(1, 1), Grows(39, 0))), **_sent("am-1", 1)},
    ),
    # one of 500 every five minutes: a hiccup of the provider
    Story(
        (Kind.BELOW,),
        {**_failed("am-4", " ".join(["0 0 0 0 0", *(f"{n} {n} {n} {n} {n}" for n in range(1, 10))])), **_sent("am-4", 100)},
    ),
    # Alertmanager is restarted, its counter of old failures with it
    Story((Kind.RESTART,), {**_failed("am-2", counter(Grows(5, 0), Grows(40, 0, True), start=900)), **_sent("am-2", 1)}),
    Story((Kind.ABSENT,), {'alertmanager_notifications_total{instance="am-3:9093",integration="pagerduty"}': counter(Grows(45, 2))}),
    doubled=False,
    records=False,
)  # fmt: skip


# --- PageFails: its page alone fails, for 15m; warning -----------------------------------------------------------------------------------


def _page_fails(
    model: str, failed: str, *spans: tuple[int, str], reason: str = "page_fails", role: str = "unified"
) -> dict[str, str]:
    """A target whose page last failed at the moments of `failed`, in seconds."""
    name = f"{model}-0"
    last = f'llm_serving_target_last_failure_timestamp_seconds{{stage="scrape",reason="{reason}",target="{name}"}}'
    return {**target(model, "", *spans, role=role), last: failed}


def _firing_page(model: str, role: str = "unified") -> Firing:
    return firing(
        "PageFails",
        {"target": f"{model}-0", "model_name": model, "role": role},
        f"{model} on {model}-0: its metrics page fails",
        "It serves: its health path answers, and its page alone does not. Nothing of its work is known, and alerts about it are silent, not green.",
    )


_PAGE_FAILS = together(
    "PageFails",
    "a server that serves, and whose page fails",
    ("19m", "24m", "40m"),
    Story(
        (Kind.FIRES, Kind.NOT_YET, Kind.ONE_REPLICA, Kind.RECOVERY),
        # from minute 6 to 28: the last failure's series stays
        _page_fails("chat", f"{NOTHING}x5 360+60x22 1680+0x30", (6, "ready"), (23, "unknown"), (30, "ready")),
        {"24m": _firing_page("chat")},
    ),
    # never read so far
    Story(
        (Kind.FIRES,),
        _page_fails("new", "0+60x60", (60, "unknown")),
        {moment: _firing_page("new") for moment in ("19m", "24m", "40m")},
    ),
    # a page that cannot be used for another reason, before or now
    Story((Kind.BELOW,), _page_fails("locked", "0+60x60", (60, "unknown"), reason="unauthorized")),
    Story((Kind.BELOW,), _page_fails("before", "60+0x60", (60, "unknown"))),
    # it is down: TargetDown's
    Story((Kind.BELOW,), _page_fails("dead", "0+60x60", (10, "ready"), (6, "down"), (40, "ready"))),
    # ten minutes, as while a disk is full
    Story((Kind.RESTART, Kind.NOT_YET), _page_fails("short", "0+60x60", (10, "ready"), (10, "unknown"), (40, "ready"))),
    Story(
        (Kind.FIRES, Kind.ROLES),
        _page_fails("gateway", "0+60x60", (60, "unknown"), role="frontend"),
        {moment: _firing_page("gateway", "frontend") for moment in ("19m", "24m", "40m")},
    ),
    # of two exporters one reads it
    Story(
        (Kind.BELOW,),
        {
            **{
                key.replace("{", '{instance="a",', 1): text
                for key, text in _page_fails("seen", "0+60x60", (60, "unknown")).items()
            },
            **{key.replace("{", '{instance="b",', 1): text for key, text in target("seen", "", (60, "ready")).items()},
        },
    ),
    # the exporter says nothing of it any more
    Story(
        (Kind.ABSENT,),
        {key: f"{text} stale" for key, text in _page_fails("removed", "0+60x10", (10, "unknown")).items()},
    ),
    doubled=False,
)


# --- RestartLoop: three starts in an hour; warning ---------------------------------------------------------------------------------------


def _starts(name: str, *spans: tuple[int, float | str]) -> dict[str, str]:
    return {f'llm_serving_target_start_time_seconds{{target="{name}"}}': held(*spans)}


def _process(host: str, *spans: tuple[int, float | str], job: str = "llm") -> dict[str, str]:
    return {f'process_start_time_seconds{{instance="{host}",job="{job}"}}': held(*spans)}


def _build(host: str, values: str) -> dict[str, str]:
    return {f'llm_serving_exporter_build_info{{instance="{host}",job="llm",version="1.0.0"}}': values}


_TARGET_LOOP = together(
    "RestartLoop",
    "a target that starts again and again",
    ("25m", "35m", "75m"),
    Story(
        (Kind.FIRES, Kind.NOT_YET, Kind.RECOVERY, Kind.ONE_REPLICA),
        # started anew at minutes 10, 20 and 30; an hour after the first of them two are left
        _starts("chat-0", (10, 100), (10, 700), (10, 1300), (50, 1900)),
        {
            "35m": firing(
                "RestartLoop",
                {"target": "chat-0"},
                "chat-0: went and came back 3 times in an hour",
                "It starts again and again, or cannot be reached again and again: users meet cold caches, lost requests and a replica that is not there.",
            )
        },
    ),
    Story((Kind.BELOW, Kind.RESTART), _starts("twice-0", (10, 100), (10, 700), (60, 1300))),
    Story((Kind.ABSENT,), {'llm_serving_target_up{target="silent-0"}': held((80, 0))}),
    records=False,
)


def _pod(number: int, *spans: tuple[int, str], workload: str = "chat", ready: bool = False) -> dict[str, str]:
    """A pod of a workload by (samples, state), "" while it is not there."""
    found = {}
    for key, _ in target(workload, f"llm/{workload}-{number}:8000", (1, "ready")).items():
        state = key.partition('state="')[2].partition('"')[0]
        parts, there = [], False
        for samples, now in spans:
            if now:
                parts.append(held((samples, float(now == state if state else now == "ready" or "info" in key))))
            else:
                parts.append(f"stale {NOTHING}x{samples - 1}" if there else f"{NOTHING}x{samples}")
            there = bool(now)
        found[key.replace('runtime="', f'namespace="llm",workload="{workload}",runtime="')] = " ".join(parts)
    return found


def _pods(workload: str, *each: tuple[tuple[int, str], ...]) -> dict[str, str]:
    return {
        key: text for number, spans in enumerate(each) for key, text in _pod(number, *spans, workload=workload).items()
    }


_FLAPS = together(
    "RestartLoop",
    "goes and comes back; pods under new names",
    ("40m", "62m", "100m", "150m"),
    Story(
        (Kind.FIRES,),
        # not to be reached for two minutes of every eight, until 80m
        target("blinks", "", *((2, "down"), (6, "ready")) * 10, (80, "ready")),
        {
            "62m": firing(
                "RestartLoop",
                {"target": "blinks-0"},
                "blinks-0: went and came back 7 times in an hour",
                "It starts again and again, or cannot be reached again and again: users meet cold caches, lost requests and a replica that "
                "is not there.",
            )
        },
    ),
    # for four of every seven it is TargetDown's; and every twenty minutes is no loop
    Story((Kind.BELOW,), target("away", "", *((4, "down"), (3, "ready")) * 22)),
    Story((Kind.BELOW,), target("seldom", "", *((2, "down"), (18, "ready")) * 8)),
    Story(
        (Kind.FIRES, Kind.RECOVERY),
        # at 62m the first has come before the hour; each pod lives for eight minutes, of which it is ready for three at most; the next one is called otherwise; the last one stays
        _pods(
            "crashes",
            *(((10 * number, ""), (5, "loading"), (3, "ready"), (150 - 10 * number, "")) for number in range(6)),
            ((60, ""), (5, "loading"), (95, "ready")),
        ),
        {
            moment: firing(
                "RestartLoop",
                {"namespace": "llm", "workload": "crashes"},
                f"llm/crashes: {pods} pods in an hour that did not last",
                "Each came under a new name, was ready for less than 10m and is gone: something ends them, or they end themselves.",
            )
            for moment, pods in (("40m", "4"), ("62m", "5"))
        },
    ),
    # an autoscaler has four pods for a quarter of an hour; and a rollout replaces four
    Story((Kind.BELOW,), _pods("scales", *(((20, ""), (3, "loading"), (15, "ready"), (120, "")) for _ in range(4)))),
    Story(
        (Kind.BELOW,),
        _pods(
            "rolls",
            *(((30, "ready"), (120, "")) for _ in range(4)),
            *(((30, ""), (3, "loading"), (120, "ready")) for _ in range(4)),
        ),
    ),
)
_EXPORTER_LOOP = together(
    "RestartLoop",
    "an exporter that starts again and again",
    ("25m", "35m"),
    Story(
        (Kind.FIRES, Kind.NOT_YET),
        # the exporter itself, which is just away at minute 35
        {
            # a server that does not say when it started: that is when the exporter saw it first
            'llm_serving_target_start_time_seconds{instance="gpu-1:10077",job="llm",target="unsaid-0"}': held(
                (10, 105), (10, 705), (10, 1305), (3, 1905), (1, "stale"), (5, NOTHING), (5, 1905)
            ),
            **_process("gpu-1:10077", (10, 100), (10, 700), (10, 1300), (3, 1900), (1, "stale"), (5, NOTHING), (5, 1900)),
            **_build("gpu-1:10077", f"1+0x32 stale {NOTHING}x5 1+0x5"),
        },
        {
            "35m": firing(
                "RestartLoop",
                {"instance": "gpu-1:10077"},
                "Exporter gpu-1:10077: 3 starts in an hour",
                "It starts again and again: its series have gaps, and everything based on them is late.",
            )
        },
    ),
    # somebody else's process, and one of another job behind the same address
    Story((Kind.ROLES,), _process("other:9100", (10, 100), (10, 700), (10, 1300), (10, 1900), job="node")),
    doubled=False,
    records=False,
)  # fmt: skip


# --- Watchdog: always; none ---------------------------------------------------------------------------------------------------------------

_WATCHDOG = Case(
    "Watchdog",
    "always, whatever is there",
    {"up": "1+0x5"},
    {
        "0m": firing(
            "Watchdog",
            {},
            "Alerting works",
            "Always fires. When it stops arriving at the dead-man service, alerts do not arrive either.",
        )
    },
    records=False,
    kinds=(Kind.FIRES, Kind.ABSENT),
)

CASES = (
    _RELOAD_FAILED, _PAGE_FAILS, _NOTIFICATIONS, _TARGET_LOOP, _FLAPS, _EXPORTER_LOOP, _WATCHDOG,
)  # fmt: skip
