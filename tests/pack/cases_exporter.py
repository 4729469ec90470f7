"""When the alerts of check exporter fire and when they do not."""

from __future__ import annotations

from tests.pack.builders import NOTHING, Grows, counter, firing, held, target
from tests.pack.promtool import Case, Firing, Kind, Story, together

# --- SignalLost: target up, a signal seen within a day is gone for a reason that is none; for 15m; warning ---------------------------------


def _signal(name: str, signal: str, *spans: tuple[int, str | None], instance: str = "") -> dict[str, str]:
    """By (samples, reason): "" for a signal that is there, None for nothing said."""
    reasons = {reason for _, reason in spans if reason is not None}
    labels = f'instance="{instance}",' if instance else ""
    found = {}
    for reason in reasons:
        parts, shown = [], False
        for samples, now in spans:
            if now == reason:
                parts.append(held((samples, float(reason == ""))))
            else:
                # a series that ends is marked so at the next scrape
                parts.append(f"stale {NOTHING}x{samples - 1}" if shown else f"{NOTHING}x{samples}")
            shown = now == reason
        key = f'llm_serving_signal_available{{{labels}target="{name}",signal="{signal}",reason="{reason}"}}'
        found[key] = " ".join(parts)
    return found


def _signals(name: str, model: str, count: str, which: str) -> Firing:
    return firing(
        "SignalLost",
        "warning",
        "exporter",
        {"target": name, "model_name": model, "role": "unified"},
        f"{model} on {name}: {count} signals that were there within a day are gone",
        f"Not available now: {which} - alerts and panels that depend on them are silent, not green.",
        "compare the server's version and flags with yesterday's",
        f"var-target={name}&var-model_name={model}&var-role=unified",
    )


_GONE = ((12, ""), (49, "not_exported"))
_UNREAD = ((12, ""), (49, "target_down"))
_SIGNAL_LOST = together(
    "SignalLost",
    "a signal that was there",
    ("26m", "30m", "58m"),
    Story(
        (Kind.FIRES, Kind.NOT_YET, Kind.ONE_REPLICA, Kind.RECOVERY),
        # two are gone from minute 12 to 44: fires at 27; a third was never there
        {
            **target("chat"),
            **_signal("chat-0", "kv_cache_usage_ratio", (12, ""), (32, "not_exported"), (17, "")),
            **_signal("chat-0", "engine_steps_total", (12, ""), (32, "version_unknown"), (17, "")),
            **_signal("chat-0", "preemptions_total", (61, "not_exported")),
        },
        {
            "30m": (
                _signals("chat-0", "chat", "2", "engine_steps_total (version_unknown) kv_cache_usage_ratio (not_exported)"),
            )
        },
    ),
    Story(
        (Kind.BELOW,),
        # of two exporters one has no access to the GPUs, for some minutes or for good; the other reads the signal
        {
            **target("pair"),
            **_signal("pair-0", "bandwidth_ceiling_ratio_gpm", *_GONE, instance="a"),
            **_signal("pair-0", "bandwidth_ceiling_ratio_gpm", (61, ""), instance="b"),
        },
    ),
    # a price that is no more has an alert of its own
    Story((Kind.BELOW,), {**target("unpriced"), **_signal("unpriced-0", "cost_usd_total", (12, ""), (49, "no_price"))}),
    Story((Kind.BELOW,), {**target("never"), **_signal("never-0", "engine_steps_total", (61, "not_exported"))}),
    Story(
        (Kind.LOW_TRAFFIC,),
        {**target("idle"), **_signal("idle-0", "batch_size_mean", (12, ""), (49, "idle"))},
    ),
    Story(
        (Kind.RESTART,),
        {**target("young"), **_signal("young-0", "batch_size_mean", (12, ""), (49, "warming_up"))},
    ),
    Story(
        (Kind.BELOW,),
        # somebody took the threshold out of the configuration
        {**target("set"), **_signal("set-0", "slo_ttft", (12, ""), (49, "not_configured"))},
    ),
    Story(
        (Kind.ROLES,),
        {**target("split", role="decode"), **_signal("split-0", "slo_ttft", (12, ""), (49, "other_role"))},
    ),
    Story(
        (Kind.FIRES,),
        # it answers with a page that nobody can read, such as that of a login
        {**target("login", "", (12, "ready"), (49, "unknown")), **_signal("login-0", "engine_steps_total", *_UNREAD)},
        {moment: (_signals("login-0", "login", "1", "engine_steps_total (target_down)"),) for moment in ("30m", "58m")},
    ),
    # what is down has its own alert, whatever is said of its signals
    Story(
        (Kind.BELOW,),
        {**target("down", "", (12, "ready"), (49, "down")), **_signal("down-0", "engine_steps_total", *_GONE)},
    ),
    Story(
        (Kind.BELOW,),
        {**target("gone", "", (12, "ready"), (49, "down")), **_signal("gone-0", "engine_steps_total", *_UNREAD)},
    ),
    Story((Kind.ABSENT,), {**target("quiet"), **_signal("quiet-0", "engine_steps_total", (12, ""), (49, None))}),
    records=False,
)  # fmt: skip


# --- ExporterAbsent: no exporter at all, for 10m; critical -------------------------------------------------------------------------------

_BUILD = 'llm_serving_exporter_build_info{instance="gpu-1:10077",job="llm",version="1.0.0",python_version="3.11.2"}'
_ABSENT = firing(
    "ExporterAbsent",
    "critical",
    "exporter",
    {},
    "No llm-serving-exporter is scraped",
    "Prometheus has no exporter's series at all: every other alert of this pack is blind.",
    "look at Prometheus' targets page, then at the exporters",
)
_EXPORTER_ABSENT = Case(
    "ExporterAbsent",
    "no exporter from minute 5 to 29",
    {_BUILD: f"1+0x4 stale {NOTHING}x24 1+0x20"},
    "14m",
    more=(("16m", (_ABSENT,)), ("40m", ())),
    records=False,
    kinds=frozenset({Kind.FIRES, Kind.NOT_YET, Kind.RECOVERY}),
)
_ONE_LEFT = Case(
    "ExporterAbsent",
    "one of two is enough",
    {_BUILD: f"1+0x4 stale {NOTHING}x40", _BUILD.replace("gpu-1", "gpu-2"): "1+0x45"},
    "40m",
    records=False,
    kinds=frozenset({Kind.BELOW}),
)


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
            "12m": (
                firing(
                    "ConfigReloadFailed",
                    "warning",
                    "exporter",
                    {"instance": "gpu-1:10077"},
                    "Exporter gpu-1:10077: its configuration was not reloaded",
                    "The file on disk is not what runs: the last reload was refused, and the exporter keeps the previous one.",
                    "run llm-serving-exporter check-config on the file",
                ),
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
            "13m": (
                firing(
                    "NotificationsFailing",
                    "warning",
                    "exporter",
                    {"instance": "am-0:9093", "integration": "pagerduty"},
                    "Alertmanager am-0:9093 cannot deliver by pagerduty",
                    "25% of its notifications failed within 5m, and of those before. Pages may not arrive; this one came by another way.",
                    "read Alertmanager's log; send a test page: llm-serving-exporter page-test",
                ),
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
            "35m": (
                firing(
                    "RestartLoop",
                    "warning",
                    "exporter",
                    {"target": "chat-0"},
                    "chat-0: 3 starts in an hour",
                    "It starts again and again: users meet cold caches, lost requests and a replica that is not there.",
                    "read the log of the last exit: out of memory, a bad flag, a failing probe",
                    "var-target=chat-0",
                ),
            )
        },
    ),
    Story((Kind.BELOW, Kind.RESTART), _starts("twice-0", (10, 100), (10, 700), (60, 1300))),
    Story((Kind.ABSENT,), {'llm_serving_target_up{target="silent-0"}': held((80, 0))}),
    records=False,
)
_EXPORTER_LOOP = together(
    "RestartLoop",
    "an exporter that starts again and again",
    ("25m", "35m"),
    Story(
        (Kind.FIRES, Kind.NOT_YET),
        # the exporter itself, which is just away at minute 35
        {
            **_process("gpu-1:10077", (10, 100), (10, 700), (10, 1300), (3, 1900), (1, "stale"), (5, NOTHING), (5, 1900)),
            **_build("gpu-1:10077", f"1+0x32 stale {NOTHING}x5 1+0x5"),
        },
        {
            "35m": (
                firing(
                    "RestartLoop",
                    "warning",
                    "exporter",
                    {"instance": "gpu-1:10077"},
                    "Exporter gpu-1:10077: 3 starts in an hour",
                    "It starts again and again: its series have gaps, and everything based on them is late.",
                    "read the log of the last exit: out of memory, a bad flag, a failing probe",
                    "var-target=",
                ),
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
    "0m",
    (
        firing(
            "Watchdog",
            "none",
            "exporter",
            {},
            "Alerting works",
            "Always fires. When it stops arriving at the dead-man service, alerts do not arrive either.",
            "none while it arrives",
        ),
    ),
    records=False,
    kinds=frozenset({Kind.FIRES, Kind.ABSENT}),
)

CASES = (
    _SIGNAL_LOST,
    _EXPORTER_ABSENT,
    _ONE_LEFT,
    _RELOAD_FAILED,
    _NOTIFICATIONS,
    _TARGET_LOOP,
    _EXPORTER_LOOP,
    _WATCHDOG,
)
