"""When the alerts of check slo fire and when they do not."""

from tests.pack.builders import NOTHING, Grows, counter, engine, firing, held, of_model, target
from tests.pack.cases_ttft import slo_events
from tests.pack.promtool import Firing, Kind, Story, together

# --- SLOBurn: as for TTFT, for errors (and itl and e2e where a threshold is set) -----------------------------------------


def _errors(model: str, good: str, finished: str, http: str = "") -> dict[str, str]:
    """Answers by how they ended, and 5xx that no request was finished by."""
    found = slo_events(engine(model), "errors", good, finished, "finished")
    if http:
        labels = f'{engine(model)},slo="errors",source="http",threshold="",outcome="bad"'
        found[f"llm_serving_slo_events_total{{{labels}}}"] = http
    return found


def _burn(severity: str, model: str, times: str, hour: str, day: str, role: str = "unified") -> Firing:
    return firing(
        "SLOBurn",
        {"model_name": model, "role": role, "slo": "errors"},
        f"{model} ({role}): errors burns its budget {times} times too fast",
        f"At this rate the error budget of 30d is spent {times} times too fast; bad events: over 1h {hour}, over 1d {day}.",
        severity=severity,
    )


def _steady(by: float, samples: int = 45) -> str:
    return counter(Grows(samples, by))


def _page_then_both(model: str, times: str, bad: str, role: str = "unified") -> dict[str, tuple[Firing, ...]]:
    """The ticket waits for a quarter of an hour."""
    page, ticket = (_burn(severity, model, times, bad, bad, role) for severity in ("critical", "warning"))
    return {"12m": (page,), "24m": (page, ticket)}


_FAST = together(
    "SLOBurn",
    "errors burn fast",
    ("6m", "12m", "24m"),
    Story(
        (Kind.FIRES, Kind.NOT_YET, Kind.ONE_REPLICA, Kind.RECOVERY),
        # of 100 a minute 2 fail, one by itself and one without ever reaching the engine: 0.02 / 0.001 = 20. From minute 15 on all is well:
        # ten minutes later 30 of 101,500 are bad
        _errors(
            "chat",
            counter(Grows(15, 98), Grows(30, 1e4)),
            counter(Grows(15, 1), Grows(30, 0)),
            counter(Grows(15, 1), Grows(30, 0)),
        ),
        {"12m": _burn("critical", "chat", "20", "2%", "2%")},
    ),
    # 0.0055 / 0.001 = 5.5 < 6: no page, and more than the 3 of a ticket
    Story(
        (Kind.BELOW,),
        _errors("calm", _steady(994.5), _steady(5.5)),
        {"24m": _burn("warning", "calm", "5.5", "0.55%", "0.55%")},
    ),
    # one of fifty: 20 times too fast, and four bad answers in all when minute 12 ends
    Story((Kind.LOW_TRAFFIC,), _errors("seldom", counter(Grows(45, 16)), counter(Grows(4, 1), Grows(41, 0)))),
    Story(
        (Kind.RESTART,),
        # both counters fall in minute 8; and an engine met with the errors of its past
        {
            **_errors("reborn", counter(Grows(8, 98), Grows(37, 98, True)), counter(Grows(8, 2), Grows(37, 2, True))),
            **_errors("met", counter(Grows(45, 100), start=1e5), counter(Grows(45, 0), start=1e5)),
        },
        _page_then_both("reborn", "20", "2%"),
    ),
    Story(
        (Kind.ABSENT,),
        # no answers; and a latency that is counted but for which these rules have no threshold
        {**_errors("idle", _steady(0), _steady(0)), **slo_events(engine("itl"), "itl", _steady(50), _steady(50))},
    ),
    Story(
        (Kind.ROLES,),
        # half of a decode pool's answers fail: that is its own, whatever role it has
        {
            key.replace('role="unified"', 'role="decode"'): text
            for key, text in _errors("pool", _steady(50), _steady(50)).items()
        },
        _page_then_both("pool", "500", "50%", "decode"),
    ),
)


def _windows(model: str, ratios: tuple[str, str, str, str], bad: float = 100) -> dict[str, str]:
    """Recorded: shares of bad events over 1d, 2h, 3d, 6h."""
    who = f'{of_model(model)},slo="errors"'
    found = {
        f"model:llm_serving_slo_bad:ratio_increase{window}{{{who}}}": share
        for window, share in zip(("1d", "2h", "3d", "6h"), ratios, strict=True)
    }
    for window in ("1d", "3d"):
        found[f"model:llm_serving_slo_events:increase{window}{{{who}}}"] = held((61, 1e5))
        found[f"model:llm_serving_slo_bad:increase{window}{{{who}}}"] = held((61, bad))
    return found


def _all(share: float) -> tuple[str, str, str, str]:
    flat = held((61, share))
    return (flat, flat, flat, flat)


_ENDS = held((30, 0.004), (31, 0.0001))
_SLOW = together(
    "SLOBurn",
    "errors burn slowly",
    ("14m", "16m", "45m"),
    Story(
        (Kind.FIRES, Kind.NOT_YET, Kind.RECOVERY, Kind.ONE_REPLICA),
        _windows("chat", (held((61, 0.004)), _ENDS, held((61, 0.002)), _ENDS)),
        {"16m": _burn("warning", "chat", "4", "unknown", "0.4%")},
    ),
    Story(
        (Kind.FIRES,),
        _windows("leak", _all(0.002)),
        {moment: _burn("warning", "leak", "2", "unknown", "0.2%") for moment in ("16m", "45m")},
    ),
    Story((Kind.BELOW,), _windows("calm", _all(0.00099))),
    Story((Kind.LOW_TRAFFIC,), _windows("four", _all(0.004), bad=4)),
    Story((Kind.ABSENT,), {key: text for key, text in _windows("gone", _all(0.004)).items() if "2h" not in key and "6h" not in key}),
)  # fmt: skip


# --- SLOBurn: the last ten all failed ---------------------------------------------------------------------------------


def _seldom(model: str, *spans: tuple[str, int, int], role: str = "unified") -> dict[str, str]:
    """Spans of requests: how they end, one in how many minutes, until which minute."""
    counts, samples = {"good": 0, "bad": 0}, {"good": [0], "bad": [0]}
    for how, every, until in spans:
        for minute in range(len(samples["good"]), until + 1):
            counts[how] += every > 0 and minute % every == 0
            for outcome, values in samples.items():
                values.append(counts[outcome])
    good, bad = (" ".join(map(str, samples[outcome])) for outcome in ("good", "bad"))
    return {
        key.replace('role="unified"', f'role="{role}"'): values for key, values in _errors(model, good, bad).items()
    }


def _in_a_row(model: str, failed: int, hour: str, day: str, role: str = "unified") -> tuple[Firing, ...]:
    burn = _burn("critical", model, "1000", hour, day, role)
    text = f"{burn.annotations['description']} All of the last {failed} requests failed."
    return (Firing(burn.labels, {**burn.annotations, "description": text}),)


_FEW = together(
    "SLOBurn",
    "ten requests an hour, and all of them fail",
    ("87m", "102m", "142m", "167m", "280m"),
    Story(
        (Kind.FIRES, Kind.NOT_YET, Kind.ONE_REPLICA, Kind.RECOVERY),
        # the first good answer ends it
        _seldom("chat", ("good", 6, 30), ("bad", 6, 150), ("good", 6, 300)),
        {"102m": _in_a_row("chat", 10, "100%", "68.75%"), "142m": _in_a_row("chat", 18, "100%", "78.26%")},
    ),
    Story(
        (Kind.FIRES, Kind.ROLES),
        # the last one failed at minute 60, and nobody has asked since: after half of the window that holds ten nothing is known
        _seldom("left", ("good", 6, 0), ("bad", 5, 60), ("good", 0, 300), role="decode"),
        {
            moment: _in_a_row("left", 12, hour, "100%", "decode")
            for moment, hour in (("87m", "100%"), ("102m", "100%"), ("142m", "unknown"), ("167m", "unknown"))
        },
    ),
    # one that failed, and nobody came after it; nine, and then one that did not
    Story((Kind.BELOW, Kind.LOW_TRAFFIC), _seldom("one", ("good", 6, 30), ("bad", 6, 37), ("good", 0, 300))),
    Story((Kind.BELOW,), _seldom("nine", ("good", 6, 30), ("bad", 6, 89), ("good", 90, 95), ("bad", 6, 149), ("good", 6, 300))),
    Story(
        (Kind.BELOW,),
        # one answer in nine is enough: what few requests come to is not known
        _seldom("most", ("bad", 6, 50), ("good", 6, 54), ("bad", 6, 100), ("good", 6, 108), ("bad", 6, 150), ("good", 6, 300)),
    ),
)  # fmt: skip


# --- Stalled: something runs or waits and no token, step or finish moves for 5m; for 1m; critical ----------------------------------------

_QUALITY = "llm_serving_signal_quality"
_FLOW = ("prefill_tokens_total", "decode_tokens_total", "engine_steps_total")


def _engine(
    model: str,
    running: str,
    waiting: str,
    moves: str,
    state: str = "ready",
    quality: str = "live",
    number: str = "0",
    role: str = "unified",
    runtime: str = "vllm",
) -> dict[str, str]:
    """An engine with its target; `waiting` "" for one that does not say it."""
    identity = engine(model, number=number, role=role)
    found = {
        **target(model, "", (46, state), role=role, runtime=runtime),
        f"llm_serving_requests_running{{{identity}}}": running,
    }
    if waiting:
        found[f"llm_serving_requests_waiting{{{identity}}}"] = waiting
    for name in _FLOW:
        found[f"llm_serving_{name}{{{identity}}}"] = moves
    found[f'llm_serving_requests_finished_total{{{identity},reason="stop"}}'] = moves
    for signal in ("decode_tokens_total", "requests_running"):
        found[f'{_QUALITY}{{target="{model}-0",signal="{signal}",quality="{quality}"}}'] = held((46, 1))
    return found


def _still(model: str, requests: str, number: str = "0") -> Firing:
    return firing(
        "Stalled",
        {"target": f"{model}-0", "model_name": model, "engine": number, "role": "unified"},
        f"{model} on {model}-0: engine {number} is stuck with {requests} requests",
        "For 5m or longer requests ran, waited or were given up, and no token, step or answer was counted, while the page was answered. A health "
        "check that only asks whether the process answers does not see this.",
    )


_STOPS, _FLAT, _MOVES = counter(Grows(10, 500), Grows(35, 0)), counter(Grows(45, 0), start=7), counter(Grows(45, 1))
_4, _3, _0 = held((46, 4)), held((46, 3)), held((46, 0))
_BOTH = ("20m", "29m")
_OTHER = engine("half", number="1")

_LATE = _engine("late", _4, _3, _STOPS)
# its tokens are booked when requests end, its steps at once
_LATE[f'{_QUALITY}{{target="late-0",signal="decode_tokens_total",quality="live"}}'] = held((46, 0))
_LATE[f'{_QUALITY}{{target="late-0",signal="decode_tokens_total",quality="lagging"}}'] = held((46, 1))
_LATE[f'{_QUALITY}{{target="late-0",signal="engine_steps_total",quality="live"}}'] = held((46, 1))


def _slow_gauge(series: dict[str, str]) -> dict[str, str]:
    """It says what runs only while there is work, and its steps at once."""
    found = {key: text for key, text in series.items() if _QUALITY not in key}
    model = next(iter(series)).partition('model_name="')[2].partition('"')[0]
    for signal, quality in (("requests_running", "slow"), ("engine_steps_total", "live")):
        found[f'{_QUALITY}{{target="{model}-0",signal="{signal}",quality="{quality}"}}'] = held((46, 1))
    return found


def _given_up(model: str, aborts: str, running: str, moves: str = _STOPS) -> dict[str, str]:
    """Clients give up, which is counted as a finish."""
    found = _engine(model, running, _0, moves)
    found[f'llm_serving_requests_finished_total{{{engine(model)},reason="abort"}}'] = aborts
    return found


_ABORTS = counter(Grows(12, 0), Grows(33, 1))

_STALLED = together(
    "Stalled",
    "an engine that stands still",
    ("14m", "20m", "29m"),
    Story((Kind.FIRES,), _LATE, {moment: _still("late", "7") for moment in _BOTH}),
    Story(
        (Kind.FIRES, Kind.NOT_YET, Kind.ONE_REPLICA, Kind.RECOVERY),
        # nothing moves from minute 10 to 25: five still minutes at 15 (14 where ranges are left-open), fires one later; 4 run and 3 wait
        _engine("chat", _4, _3, counter(Grows(10, 500), Grows(15, 0), Grows(20, 500))),
        {"20m": _still("chat", "7")},
    ),
    Story(
        (Kind.FIRES, Kind.LOW_TRAFFIC),
        # one request is enough; this engine does not say how many wait
        _engine("single", held((46, 1)), "", _STOPS),
        {moment: _still("single", "1") for moment in _BOTH},
    ),
    Story(
        (Kind.FIRES,),
        # one of two engines of a target: the other goes on
        {
            **_engine("half", _4, _0, _MOVES),
            f"llm_serving_requests_running{{{_OTHER}}}": held((46, 2)),
            f"llm_serving_decode_tokens_total{{{_OTHER}}}": _STOPS,
        },
        {moment: _still("half", "2", "1") for moment in _BOTH},
    ),
    Story(
        (Kind.FIRES,),
        # what runs is thrown back into the queue and taken up again, in turns: never both nothing
        _engine("thrash", "1+0x9 " + " ".join(["0", "1"] * 18), "0+0x9 " + " ".join(["1", "0"] * 18), _STOPS),
        {moment: _still("thrash", "1") for moment in _BOTH},
    ),
    # a gauge that keeps its last value is no request; where clients give up, it need not be asked (SGLang)
    Story((Kind.BELOW,), _slow_gauge(_engine("keeps", _4, _0, _STOPS))),
    Story((Kind.FIRES,), _slow_gauge(_given_up("hangs", _ABORTS, _4)), {"29m": _still("hangs", "10")}),
    # each minute a client gives up: no progress
    Story((Kind.FIRES,), _given_up("given-up", _ABORTS, _4), {moment: _still("given-up", "4") for moment in _BOTH}),
    # clients give up and others come, so that nothing is there in every fourth minute: half of ten minutes without a move
    Story((Kind.FIRES,), _given_up("impatient", _ABORTS, " ".join(["3 3 3 0"] * 12)), {"29m": _still("impatient", "3")}),
    # nobody is let in, and the page shows no more of it than that clients give up
    Story((Kind.FIRES,), _given_up("shut", _ABORTS, _0, _FLAT), {"20m": _still("shut", "8"), "29m": _still("shut", "10")}),
    Story((Kind.BELOW,), _given_up("moody", counter(Grows(12, 0), Grows(2, 1), Grows(31, 0)), _0, _FLAT)),
    Story((Kind.BELOW,), _engine("idle", _0, _0, _FLAT)),
    # a token every four minutes, and nothing else
    Story((Kind.BELOW,), _engine("slow", _4, _3, "0 " + " ".join(str(minute // 4) for minute in range(45)))),
    # requests that came and went within the range
    Story((Kind.BELOW,), _engine("brief", held((15, 0), (4, 4), (27, 0)), _0, _FLAT)),
    Story(
        (Kind.RESTART,),
        # the replica was restarted, is back since minute 17 with counters at 0, and computes its first prompt until minute 22;
        # an exporter that was away for five minutes; both hold requests
        {
            **_engine("reborn", f"4+0x11 stale {NOTHING}x4 1+0x28", f"3+0x11 stale {NOTHING}x4 2+0x28",
                      f"0+500x11 stale {NOTHING}x4 0 0 0 0 0 10+10x23"),
            **_engine("away", f"4+0x11 stale {NOTHING}x4 4+0x28", f"3+0x11 stale {NOTHING}x4 3+0x28",
                      f"0+500x11 stale {NOTHING}x4 6000 6000 6000 6000 6000 6010+10x23"),
        },
    ),
    Story((Kind.ABSENT,), {key: text for key, text in _engine("mute", _4, _3, _FLAT).items() if "_total{" not in key}),
    Story((Kind.ABSENT,), {key: text for key, text in _engine("unmarked", _4, _3, _FLAT).items() if _QUALITY not in key}),
    Story((Kind.BELOW,), _engine("lagging", _4, _3, _FLAT, quality="lagging")),
    # down is another alert, and asleep is none
    Story((Kind.BELOW,), {**_engine("down", _4, _3, _FLAT, "down"), **_engine("asleep", _0, _3, _FLAT, "sleeping")}),
    Story(
        (Kind.ROLES,),
        # a front end has no batch, so that the quality of requests_running is not told
        {
            key: text
            for key, text in _engine("front", _4, _3, _FLAT, role="frontend").items()
            if 'signal="requests_running"' not in key
        },
    ),
)  # fmt: skip

CASES = (_FAST, _SLOW, _FEW, _STALLED)
