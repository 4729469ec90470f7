"""When the alerts of check ttft fire and when they do not."""

from __future__ import annotations

from tests.pack.builders import Grows, buckets, counter, engine, firing, held, of_model
from tests.pack.promtool import Firing, Kind, Story, together

_TTFT = "time_to_first_token_seconds"


# --- TTFTHigh: p99 above the threshold of 2.5 s, 300 events in 10m, for 10m; info ------------------------------------------------------


def _threshold(identity: str) -> dict[str, str]:
    return {f'llm_serving_slo_threshold_seconds{{{identity},slo="ttft",kind="configured"}}': held((61, 2.5))}


def _high(model: str, p99: str, beyond: str) -> Firing:
    return firing(
        "TTFTHigh",
        "info",
        "ttft",
        {"model_name": model, "role": "unified"},
        f"{model} (unified): p99 time to first token {p99}",
        f"The 99th percentile of 10m is {p99}, above the threshold of 2.5s. Beyond the engine's largest bucket edge lie {beyond}.",
        "context for other alerts; nobody is notified",
        f"var-model_name={model}&var-role=unified",
    )


# of 100 a minute 95 within 0.5 s and 5 between 2.5 and 5: p99 = 2.5 + 2.5 x 4/5
_SLOW = {"0.5": 95, "5.0": 5}
# ten engines' worth of calm beside one that is slow: 5 of 1,000 are slow, p99 is the fast ones'
_BESIDE = engine("diluted", "diluted-1")

_HIGH = together(
    "TTFTHigh",
    "p99 above the threshold",
    ("11m", "20m", "38m"),
    Story(
        (Kind.FIRES, Kind.NOT_YET, Kind.ONE_REPLICA, Kind.RECOVERY),
        # 300 events are there after three minutes, ten minutes more is 13; after minute 25 no request is slow
        {**buckets(_TTFT, engine("chat"), (25, _SLOW), (35, {"0.5": 100})), **_threshold(engine("chat"))},
        {"20m": (_high("chat", "4.5s", "0%"),)},
    ),
    Story(
        (Kind.FIRES,),
        # 5 of 100 beyond the largest edge: how far nobody knows, and histogram_quantile says 5
        {**buckets(_TTFT, engine("long"), (60, {"0.5": 95, "+Inf": 5})), **_threshold(engine("long"))},
        {moment: (_high("long", "at least 5s", "5%"),) for moment in ("20m", "38m")},
    ),
    Story(
        (Kind.RESTART,),
        # the engine restarts in minute 15: what it counted before does not read as requests that took back their answers
        {
            **buckets(_TTFT, engine("reborn"), (15, _SLOW), (45, _SLOW), reborn=1),
            **_threshold(engine("reborn")),
        },
        {moment: (_high("reborn", "4.5s", "0%"),) for moment in ("20m", "38m")},
    ),
    Story(
        (Kind.BELOW,),
        # p99 = 1 + 1.5 x 4/5 = 2.2
        {**buckets(_TTFT, engine("calm"), (60, {"0.5": 95, "2.5": 5})), **_threshold(engine("calm"))},
    ),
    Story(
        (Kind.LOW_TRAFFIC,),
        # 29 a minute are 290 in ten
        {**buckets(_TTFT, engine("seldom"), (60, {"0.5": 9, "5.0": 20})), **_threshold(engine("seldom"))},
    ),
    Story(
        (Kind.ABSENT,),
        # nobody set a threshold for this one; the next one's buckets end, and with them what is known of it
        {
            **buckets(_TTFT, engine("unwatched"), (60, _SLOW)),
            **buckets(_TTFT, engine("gone"), (8, _SLOW)),
            **_threshold(engine("gone")),
        },
    ),
    Story(
        (Kind.ROLES,),
        # a decode replica's clock starts when the prompt's KV arrives: the exporter counts no TTFT there, so that it has no threshold
        buckets(_TTFT, engine("split", role="decode"), (60, _SLOW)),
    ),
    Story(
        (Kind.BELOW,),
        {
            **buckets(_TTFT, engine("diluted"), (60, _SLOW)),
            **buckets(_TTFT, _BESIDE, (60, {"0.5": 900})),
            **_threshold(engine("diluted")),
            **_threshold(_BESIDE),
        },
    ),
)


# --- TTFTBurnFast: 14.4 x over 1h and 5m, or 6 x over 6h and 30m, 100 events and 5 bad; for 2m; critical ---------------------------------


def slo_events(
    identity: str, name: str, good: str, bad: str = "", source: str = "histogram", threshold: str = "2.5"
) -> dict[str, str]:
    """Good and bad events of an objective, as counters; `bad` "" for an engine that has not said it."""
    labels = f'{identity},slo="{name}",source="{source}",threshold="{threshold if source == "histogram" else ""}"'
    found = {f'llm_serving_slo_events_total{{{labels},outcome="good"}}': good}
    if bad:
        found[f'llm_serving_slo_events_total{{{labels},outcome="bad"}}'] = bad
    return found


def _ttft(model: str, good: float, bad: float, samples: int = 60) -> dict[str, str]:
    return slo_events(engine(model), "ttft", counter(Grows(samples, good)), counter(Grows(samples, bad)))


def _burn(alert: str, severity: str, model: str, times: str, window: str, bad: str, p99: str = "unknown") -> Firing:
    return firing(
        alert,
        severity,
        "ttft",
        {"model_name": model, "role": "unified", "slo": "ttft"},
        f"{model} (unified): time to first token burns its budget {times} times too fast",
        f"At this rate the error budget of 30d is spent {times} times too fast; bad events over {window}: {bad}. "
        f"Objective: 0.99 within 2.5s. p99 now: {p99}.",
        "look at waiting requests and KV usage first",
        f"var-model_name={model}&var-role=unified",
    )


_FAST = together(
    "TTFTBurnFast",
    "the budget is spent fast",
    ("6m", "12m", "24m"),
    Story(
        (Kind.FIRES, Kind.NOT_YET, Kind.ONE_REPLICA, Kind.RECOVERY),
        # 8 of 40 a minute are bad: 0.2 / 0.01 = 20 times too fast, from the first five minutes on. Minute 15 ends it: ten
        # minutes later the 5m are clean, and of 600 + 10,000 events in the 30m 120 are bad, 1.1 %
        {
            **slo_events(
                engine("chat"), "ttft", counter(Grows(15, 32), Grows(45, 1000)), counter(Grows(15, 8), Grows(45, 0))
            ),
            **buckets(_TTFT, engine("chat"), (60, _SLOW)),
        },
        {"12m": (_burn("TTFTBurnFast", "critical", "chat", "20", "1h", "20%", "4.5s"),)},
    ),
    Story(
        (Kind.FIRES,),
        # 10 %: not 14.4 times too fast, but 6 times over 6h and 30m
        _ttft("leak", 90, 10),
        {moment: (_burn("TTFTBurnFast", "critical", "leak", "10", "1h", "10%"),) for moment in ("12m", "24m")},
    ),
    Story((Kind.BELOW,), _ttft("calm", 945, 55)),  # 5.5 < 6
    Story(
        (Kind.LOW_TRAFFIC,),
        # every request is bad, one a minute: 32 in half an hour
        _ttft("seldom", 0, 1),
    ),
    Story(
        (Kind.RESTART,),
        # an engine that goes on bad after its restart in minute 8; and one that the exporter met with a million bad events of its past
        {
            **slo_events(
                engine("reborn"), "ttft", counter(Grows(8, 32), Grows(52, 32, True)), counter(Grows(8, 8), Grows(52, 8, True))
            ),
            **slo_events(
                engine("met"), "ttft", counter(Grows(60, 100), start=1e6), counter(Grows(60, 0), start=1e6)
            ),
        },
        {moment: (_burn("TTFTBurnFast", "critical", "reborn", "20", "1h", "20%"),) for moment in ("12m", "24m")},
    ),
    Story(
        (Kind.ABSENT,),
        # no request at all; only good ones ever counted
        {
            **_ttft("idle", 0, 0),
            **slo_events(engine("good"), "ttft", counter(Grows(60, 100))),
        },
    ),
    Story(
        (Kind.ROLES,),
        # a decode replica has no TTFT of a user; its inter-token latency is another alert's, and only with a threshold
        slo_events(engine("split", role="decode"), "itl", counter(Grows(60, 50)), counter(Grows(60, 50))),
    ),
)  # fmt: skip


# --- TTFTBurnSlow: 3 x over 1d and 2h, or 1 x over 3d and 6h; for 15m; warning ----------------------------------------------------------


def _windows(model: str, ratio: dict[str, float | str], events: float = 1e4, bad: float = 1e3) -> dict[str, str]:
    """Recorded windows: the share of bad events by window, a number or what `held` made."""
    who = f'{of_model(model)},slo="ttft"'
    found = {
        f"model:llm_serving_slo_bad:ratio_increase{window}{{{who}}}": share
        if isinstance(share, str)
        else held((61, share))
        for window, share in ratio.items()
    }
    for window in ("1d", "3d"):
        found[f"model:llm_serving_slo_events:increase{window}{{{who}}}"] = held((61, events))
        found[f"model:llm_serving_slo_bad:increase{window}{{{who}}}"] = held((61, bad))
    return found


_SLOW_BURN = together(
    "TTFTBurnSlow",
    "the budget is spent slowly",
    ("14m", "16m", "45m"),
    Story(
        (Kind.FIRES, Kind.NOT_YET, Kind.RECOVERY),
        # 4 times over a day; after minute 30 two good hours lie behind it, and six within the 6h
        _windows("chat", {"1d": 0.04, "2h": held((30, 0.04), (31, 0.001)), "3d": 0.02, "6h": held((30, 0.02), (31, 0.009))}),
        {"16m": (_burn("TTFTBurnSlow", "warning", "chat", "4", "1d", "4%"),)},
    ),
    Story(
        (Kind.FIRES,),
        # 2 times: the pair of 3d and 6h alone
        _windows("leak", {"1d": 0.02, "2h": 0.02, "3d": 0.02, "6h": 0.02}),
        {moment: (_burn("TTFTBurnSlow", "warning", "leak", "2", "1d", "2%"),) for moment in ("16m", "45m")},
    ),
    Story((Kind.BELOW,), _windows("calm", {"1d": 0.0099, "2h": 0.0099, "3d": 0.0099, "6h": 0.0099})),
    Story((Kind.LOW_TRAFFIC,), _windows("seldom", {"1d": 0.05, "2h": 0.05, "3d": 0.05, "6h": 0.05}, events=99, bad=5)),
    Story((Kind.LOW_TRAFFIC,), _windows("four", {"1d": 0.04, "2h": 0.04, "3d": 0.04, "6h": 0.04}, events=100, bad=4)),
    Story((Kind.ABSENT,), _windows("gone", {"1d": 0.05, "3d": 0.05})),
)  # fmt: skip


# the same from raw events: an hour of 5 % is 5 times too fast over all that there is of a day, and not fast enough to page
_SLOW_RAW = together(
    "TTFTBurnSlow",
    "from raw events",
    ("17m", "24m"),
    Story((Kind.FIRES, Kind.ONE_REPLICA), _ttft("chat", 95, 5), {"24m": (_burn("TTFTBurnSlow", "warning", "chat", "5", "1d", "5%"),)}),
    Story(
        (Kind.RESTART,),
        slo_events(engine("reborn"), "ttft", counter(Grows(8, 96), Grows(52, 96, True)), counter(Grows(8, 4), Grows(52, 4, True))),
        {"24m": (_burn("TTFTBurnSlow", "warning", "reborn", "4", "1d", "4%"),)},
    ),
    Story((Kind.ROLES,), slo_events(engine("split", role="decode"), "itl", counter(Grows(60, 50)), counter(Grows(60, 50)))),
)  # fmt: skip

CASES = (_HIGH, _FAST, _SLOW_BURN, _SLOW_RAW)
