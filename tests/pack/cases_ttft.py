"""When the alerts of check ttft fire and when they do not."""

from tests.pack.builders import Grows, buckets, counter, engine, firing, held, of_model
from tests.pack.promtool import Firing, Kind, Story, together

_TTFT = "time_to_first_token_seconds"


# of 100 a minute 95 within 0.5 s and 5 between 2.5 and 5: p99 = 2.5 + 2.5 x 4/5
_SLOW = {"0.5": 95, "5.0": 5}


# --- TTFTBurn, the page: 14.4 x over 1h and 5m, or 6 x over 6h and 30m, 100 events and 5 bad; for 2m ---------------------------------


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


def _burn(severity: str, model: str, times: str, hour: str, day: str, p99: str = "unknown") -> Firing:
    return firing(
        "TTFTBurn",
        {"model_name": model, "role": "unified", "slo": "ttft"},
        f"{model} (unified): time to first token burns its budget {times} times too fast",
        f"At this rate the error budget of 30d is spent {times} times too fast; bad events: over 1h {hour}, over 1d {day}. "
        f"Objective: 0.99 within 2.5s. p99 now: {p99}.",
        severity=severity,
    )


def _page_then_both(model: str, times: str, bad: str) -> dict[str, tuple[Firing, ...]]:
    """The ticket waits for a quarter of an hour."""
    page, ticket = (_burn(severity, model, times, bad, bad) for severity in ("critical", "warning"))
    return {"12m": (page,), "24m": (page, ticket)}


_FAST = together(
    "TTFTBurn",
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
        # as a ticket it goes on: of 3d and 6h, which is all that there is, 120 of 5,600 are bad, as the 5m steps count them
        {
            "12m": _burn("critical", "chat", "20", "20%", "20%", "4.5s"),
            "24m": _burn("warning", "chat", "2.143", "2.143%", "2.143%", "4.5s"),
        },
    ),
    Story(
        (Kind.FIRES,),
        # 10 %: not 14.4 times too fast, but 6 times over 6h and 30m
        _ttft("leak", 90, 10),
        _page_then_both("leak", "10", "10%"),
    ),
    # 5.5 < 6: no page, and more than the 3 of a ticket
    Story((Kind.BELOW,), _ttft("calm", 945, 55), {"24m": _burn("warning", "calm", "5.5", "5.5%", "5.5%")}),
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
        _page_then_both("reborn", "20", "20%"),
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


# --- the ticket: 3 x over 1d and 2h, or 1 x over 3d and 6h; for 15m ----------------------------------------------------------


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
    for window in ("6h", "3d"):
        clock = f'{who},counts_for="unified",clock="engines"'
        found[f"model:llm_serving_ttft_clock:held{window}{{{clock}}}"] = held((61, 1))
    return found


_SLOW_BURN = together(
    "TTFTBurn",
    "the budget is spent slowly",
    ("14m", "16m", "45m"),
    Story(
        (Kind.FIRES, Kind.NOT_YET, Kind.RECOVERY),
        # 4 times over a day; after minute 30 two good hours lie behind it, and six within the 6h
        _windows("chat", {"1d": 0.04, "2h": held((30, 0.04), (31, 0.001)), "3d": 0.02, "6h": held((30, 0.02), (31, 0.009))}),
        {"16m": _burn("warning", "chat", "4", "unknown", "4%")},
    ),
    Story(
        (Kind.FIRES,),
        # 2 times: the pair of 3d and 6h alone
        _windows("leak", {"1d": 0.02, "2h": 0.02, "3d": 0.02, "6h": 0.02}),
        {moment: _burn("warning", "leak", "2", "unknown", "2%") for moment in ("16m", "45m")},
    ),
    Story((Kind.BELOW,), _windows("calm", {"1d": 0.0099, "2h": 0.0099, "3d": 0.0099, "6h": 0.0099})),
    Story((Kind.LOW_TRAFFIC,), _windows("seldom", {"1d": 0.05, "2h": 0.05, "3d": 0.05, "6h": 0.05}, events=99, bad=5)),
    Story((Kind.LOW_TRAFFIC,), _windows("four", {"1d": 0.04, "2h": 0.04, "3d": 0.04, "6h": 0.04}, events=100, bad=4)),
    Story((Kind.ABSENT,), _windows("gone", {"1d": 0.05, "3d": 0.05})),
)  # fmt: skip


# the same from raw events: an hour of 5 % is 5 times too fast over all that there is of a day, and not fast enough to page
_SLOW_RAW = together(
    "TTFTBurn",
    "from raw events",
    ("17m", "24m"),
    Story((Kind.FIRES, Kind.ONE_REPLICA), _ttft("chat", 95, 5), {"24m": _burn("warning", "chat", "5", "5%", "5%")}),
    Story(
        (Kind.RESTART,),
        slo_events(engine("reborn"), "ttft", counter(Grows(8, 96), Grows(52, 96, True)), counter(Grows(8, 4), Grows(52, 4, True))),
        {"24m": _burn("warning", "reborn", "4", "4%", "4%")},
    ),
    Story((Kind.ROLES,), slo_events(engine("split", role="decode"), "itl", counter(Grows(60, 50)), counter(Grows(60, 50)))),
)  # fmt: skip


# --- front doors, with an hour as the longest window of a page and two as that of a ticket: gone by once they covered half of what the
# engines finish for so long, and no longer once they did not for so long -----------------------------------------------------------

_MINUTES = 260


def _engines(model: str, *spans: tuple[int, float, float], role: str = "unified") -> dict[str, str]:
    """Engines that finish what they had a first token for. `spans`: (minutes, in time, late) a minute."""
    who = engine(model, role, role=role) if role != "unified" else engine(model)
    good = counter(*(Grows(minutes, in_time) for minutes, in_time, _ in spans))
    bad = counter(*(Grows(minutes, late) for minutes, _, late in spans))
    finished = f'llm_serving_requests_finished_total{{{who},reason="stop"}}'
    every = counter(*(Grows(minutes, in_time + late) for minutes, in_time, late in spans))
    return {**slo_events(who, "ttft", good, bad), finished: every}


def _door(model: str, name: str, good: float, bad: float, minutes: int = _MINUTES) -> dict[str, str]:
    """A gateway that times first tokens for its clients: those within half a second, and those between 2.5 s and 5 s."""
    who = engine(model, name, role="frontend")
    ended = "" if minutes == _MINUTES else " stale"
    events = slo_events(who, "ttft", counter(Grows(minutes, good)) + ended, counter(Grows(minutes, bad)) + ended)
    found = buckets(_TTFT, who, (minutes, {"0.5": good, "5.0": bad}))
    return {**events, **{name: values + ended for name, values in found.items()}}


def _of_a_door(severity: str, model: str, times: str, hour: str, day: str, p99: str) -> Firing:
    found = _burn(severity, model, times, hour, day, p99)
    description = found.annotations["description"].replace("over 1d", "over 2h")
    return Firing(found.labels, {**found.annotations, "description": description})


def _by_door(model: str) -> dict[str, tuple[Firing, ...]]:
    """The page after an hour, the ticket after two: both of the role of the engines, for which the front door's clock counts."""
    by = "40% as the front door times them"
    page = _of_a_door("critical", model, "40", by, "0%", "4.938s")
    both = tuple(_of_a_door(severity, model, "40", by, by, "4.938s") for severity in ("critical", "warning"))
    return {"80m": (page,), "120m": (page,), "160m": both, "240m": both}


def _of_role(firing: Firing, role: str) -> Firing:
    said = {
        name: text.replace("(unified)", f"({role})").replace("var-role=unified", f"var-role={role}")
        for name, text in firing.annotations.items()
    }
    return Firing({**firing.labels, "role": role}, said)


_FRONT_DOORS = together(
    "TTFTBurn",
    "front doors",
    ("60m", "80m", "120m", "160m", "240m"),
    Story(
        (Kind.FIRES, Kind.NOT_YET, Kind.ROLES),
        # the engines' own clock says 0.5 s while their front end is starved: 40 of 100 clients wait 2.5 s to 5 s
        {**_engines("starved", (_MINUTES, 100, 0)), **_door("starved", "gateway-0", 60, 40)},
        _by_door("starved"),
    ),
    Story(
        (Kind.FIRES, Kind.ROLES),
        # the engines are split, and both sides count first tokens: the users behind the one front door wait once, and one page says so
        {
            **_engines("apart", (_MINUTES, 100, 0), role="prefill"),
            **_engines("apart", (_MINUTES, 100, 0), role="decode"),
            **_door("apart", "gateway-5", 60, 40),
        },
        {
            when: tuple(_of_role(one, "prefill") for one in firing)
            for when, firing in _by_door("apart").items()
        },
    ),
    # it times a tenth of the requests, all of them late: the engines' clock stays
    Story((Kind.BELOW, Kind.ROLES), {**_engines("tenth", (_MINUTES, 100, 0)), **_door("tenth", "gateway-1", 0, 10)}),
    Story(
        (Kind.FIRES, Kind.ROLES),
        # two gateways, neither of which has half of the requests
        {
            **_engines("two", (_MINUTES, 100, 0)),
            **_door("two", "gateway-2", 18, 12),
            **_door("two", "gateway-3", 18, 12),
        },
        _by_door("two"),
    ),
    Story(
        (Kind.FIRES, Kind.RECOVERY, Kind.ROLES),
        # the gateway goes after 85 minutes, and from then on first tokens are late by the engines' clock: the page's hour is still of the
        # gateway's at minute 120, and of the engines' once it was not there for an hour. The ticket has gone by the engines all the time
        {
            **_engines("left", (85, 100, 0), (_MINUTES - 85, 60, 40)),
            **_door("left", "gateway-4", 60, 40, minutes=85),
        },
        {
            "80m": _of_a_door("critical", "left", "40", "40% as the front door times them", "0%", "4.938s"),
            # of two hours 35 minutes and 75 are late, at 40 %
            "120m": _of_a_door("warning", "left", "11.67", "40% as the front door times them", "11.67%", "unknown"),
            "160m": _of_a_door("warning", "left", "25", "unknown as the front door times them", "25%", "unknown"),
            "240m": tuple(
                _of_a_door(severity, "left", "40", "40%", "40%", "unknown") for severity in ("critical", "warning")
            ),
        },
    ),
    rules="ttft_front_doors",
)  # fmt: skip

CASES = (_FAST, _SLOW_BURN, _SLOW_RAW, _FRONT_DOORS)
