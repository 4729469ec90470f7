"""When the alerts of check exporter that are about targets fire and when they do not."""

from tests.pack.builders import firing, held, target
from tests.pack.promtool import Firing, Kind, Story, together

# --- TargetDown: down, not loading or asleep, for 15m; warning ---------------------------------------------------------------------------


def _down(model: str, name: str, role: str = "unified") -> Firing:
    return firing(
        "TargetDown",
        {"target": name, **({"model_name": model} if model else {}), "role": role},
        f"{model} on {name}: down" if model else f"{name}: down",
        "The server does not answer, and it is neither loading nor asleep. The exporter's landing page has the last failures.",
    )


def _scraped_by(series: dict[str, str], instance: str) -> dict[str, str]:
    return {key.replace("{", f'{{instance="{instance}",', 1): text for key, text in series.items()}


# promtool takes the groups in any order: what rests on four of them may be as many minutes late
_FIRST, _ALWAYS = "19m", ("24m", "46m")
_TARGET_DOWN = together(
    "TargetDown",
    "a server that does not answer",
    (_FIRST, *_ALWAYS),
    Story(
        (Kind.FIRES, Kind.NOT_YET, Kind.ONE_REPLICA, Kind.RECOVERY),
        # down from minute 6 to 25: fires at 20; half of 30m is over at 40
        target("chat", "", (6, "ready"), (20, "down"), (24, "ready")),
        {"24m": _down("chat", "chat-0")},
    ),
    Story(
        (Kind.FIRES, Kind.ROLES),
        target("chat", "router", (50, "down"), role="frontend"),
        {moment: _down("chat", "router", "frontend") for moment in (_FIRST, *_ALWAYS)},
    ),
    Story(
        (Kind.FIRES,),
        # never answered, and nobody has said what it serves
        target("", "new-0", (50, "down")),
        {moment: _down("", "new-0") for moment in (_FIRST, *_ALWAYS)},
    ),
    Story(
        (Kind.FIRES,),
        # of two exporters one was restarted since and knows the model no more
        {
            **_scraped_by(target("pair", "pair-0", (50, "down")), "a"),
            **_scraped_by(target("", "pair-0", (50, "down")), "b"),
        },
        {moment: _down("pair", "pair-0") for moment in (_FIRST, *_ALWAYS)},
    ),
    Story(
        (Kind.BELOW,),
        # of two exporters one cannot reach it
        {
            **_scraped_by(target("seen", "seen-0", (50, "ready")), "a"),
            **_scraped_by(target("seen", "seen-0", (50, "down")), "b"),
        },
    ),
    Story(
        (Kind.FIRES,),
        # it cannot be reached for four minutes of every seven; of 30m of such it is down for half after 27 or 28
        target("flaps", "", (3, "ready"), *((4, "down"), (3, "ready")) * 8),
        {"46m": _down("flaps", "flaps-0")},
    ),
    # three minutes of every seven: RestartLoop counts how often
    Story((Kind.BELOW,), target("blinks", "", *((3, "down"), (4, "ready")) * 8)),
    Story((Kind.BELOW,), target("loads", "", (50, "loading"))),
    Story((Kind.BELOW,), target("sleeps", "", (50, "sleeping"))),
    Story((Kind.BELOW,), target("unclear", "", (50, "unknown"))),
    # a restart takes 14 minutes
    Story((Kind.RESTART, Kind.NOT_YET), target("restarts", "", (3, "ready"), (14, "down"), (30, "ready"))),
    # the exporter says nothing of it any more
    Story((Kind.ABSENT,), {key: f"{text} stale" for key, text in target("removed", "", (10, "down")).items()}),
)


# --- TargetsDown: over half of a model's wanted (or known) targets, for 5m; critical ------------------------------------------------------


def _targets(model: str, share: str, wanted: str, known: str, role: str = "unified") -> Firing:
    return firing(
        "TargetsDown",
        {"model_name": model, "role": role},
        f"{model} ({role}): {share} of its replicas are down",
        f"Replicas wanted: {wanted}, known: {known}. {share} of them do not answer, neither loading nor asleep.",
    )


def _replicas(model: str, *each: tuple[tuple[int, str], ...], role: str = "unified") -> dict[str, str]:
    return {
        key: text
        for number, states in enumerate(each)
        for key, text in target(model, f"{model}-{number}", *states, role=role).items()
    }


def _wanted(model: str, *spans: tuple[int, float]) -> dict[str, str]:
    return {f'llm_serving_expected_replicas{{model_name="{model}",role="unified"}}': held(*spans)}


def _nameless(model: str, up: int, down: int, after: int) -> dict[str, str]:
    """A fourth replica that goes down; then its exporter starts again."""
    name = f"{model}-3"
    series = target(model, name, (up, "ready"), (down + after, "down"))
    (info,) = (key for key in series if "target_info" in key)
    return {
        **series,
        info: f"{held((up + down, 1))} stale",
        info.replace(f'model_name="{model}"', 'model_name=""'): f"_x{up + down} {held((after, 1))}",
    }


_UP, _LOST = ((50, "ready"),), ((12, "ready"), (38, "down"))
_BACK = ((12, "ready"), (13, "down"), (25, "ready"))
_NEVER = ((50, "down"),)
_AFTER = ("20m", "32m")
_TARGETS_DOWN = together(
    "TargetsDown",
    "most replicas of a model",
    ("16m", "20m", "32m"),
    Story(
        (Kind.FIRES, Kind.NOT_YET, Kind.RECOVERY),
        # 3 of 4 from minute 12 on: fires at 17; back at 25
        _replicas("chat", _UP, _BACK, _BACK, _BACK),
        {"20m": _targets("chat", "75%", "unknown", "4")},
    ),
    Story(
        (Kind.FIRES, Kind.ONE_REPLICA),
        _replicas("single", _LOST),
        {moment: _targets("single", "100%", "unknown", "1") for moment in _AFTER},
    ),
    Story(
        (Kind.FIRES, Kind.ROLES),
        # the only way in; its workers are another role and well
        {**_replicas("routed", _LOST, role="frontend")},
        {moment: _targets("routed", "100%", "unknown", "unknown", "frontend") for moment in _AFTER},
    ),
    Story((Kind.BELOW,), _replicas("half", _UP, _UP, _LOST, _LOST)),
    # scaled from 1 to 3: two are there and load their weights, refusing connections; one does not even exist
    Story((Kind.RESTART,), _replicas("grows", _UP, _NEVER, _NEVER)),
    Story((Kind.RESTART,), {**_replicas("asked", _UP), **_wanted("asked", (20, 1), (30, 4))}),
    # scaled to nothing, or down to one; what is gone is still in the exporter's list
    Story((Kind.BELOW,), {**_replicas("off", _LOST, _LOST), **_wanted("off", (12, 2), (38, 0))}),
    Story((Kind.BELOW,), {**_replicas("shrunk", _UP, _LOST, _LOST), **_wanted("shrunk", (12, 3), (38, 1))}),
    Story((Kind.BELOW,), _replicas("loads", ((50, "loading"),), ((50, "sleeping"),), ((50, "unknown"),))),
    Story((Kind.ABSENT,), {key: f"{text} stale" for key, text in _replicas("removed", ((10, "down"),)).items()}),
    # taken out of service in minute 12, with all that was said of it
    Story(
        (Kind.ABSENT,),
        {
            key: f"{text} stale"
            for key, text in {**_replicas("dropped", ((12, "ready"),)), **_wanted("dropped", (12, 2))}.items()
        },
    ),
)


_LONG, _WENT = ((70, "ready"),), ((40, "ready"),)


def _ended(series: dict[str, str]) -> dict[str, str]:
    """As their exporters went with them."""
    return {key: f"{text} stale" for key, text in series.items()}


_WANTED_DOWN = together(
    "TargetsDown",
    "replicas that are wanted",
    ("16m", "38m", "52m"),
    Story(
        (Kind.FIRES,),
        # 3 are wanted, one is known, and it serves; the others went with their nodes and with the exporters that stood there
        {**target("swept", "swept-0", *_LONG), **_wanted("swept", (70, 3))}
        | _ended({**target("swept", "swept-1", *_WENT), **target("swept", "swept-2", *_WENT)}),
        {"52m": _targets("swept", "66.67%", "3", "1")},
    ),
    Story(
        (Kind.FIRES,),
        # both went, with all exporters that knew of them
        {**_ended(_replicas("nowhere", _WENT, _WENT)), **_wanted("nowhere", (70, 2))},
        {"52m": _targets("nowhere", "100%", "2", "unknown")},
    ),
    # wanted, and never there: a first deployment, or one that waits for capacity
    Story((Kind.FIRST_WEEK,), {**_replicas("first", ((70, "down"),), ((70, "down"),)), **_wanted("first", (70, 2))}),
    Story((Kind.FIRST_WEEK,), _wanted("listed", (70, 2))),
    Story((Kind.BELOW,), {**_replicas("pending", _LONG, _LONG), **_wanted("pending", (70, 6))}),
    # one of four is down when a central exporter starts again: it cannot learn the model of that one
    Story((Kind.BELOW,), {**_replicas("kept", _LONG, _LONG, _LONG), **_nameless("kept", 12, 8, 50)}),
)


CASES = (_TARGET_DOWN, _TARGETS_DOWN, _WANTED_DOWN)
