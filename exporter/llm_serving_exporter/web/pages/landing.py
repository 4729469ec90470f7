"""One View -> the page at /: what every target and GPU does now, what is missing and why. HTML without scripts or parts from elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from importlib.resources import files
from itertools import groupby
from urllib.parse import quote

from markupsafe import Markup

from llm_serving_exporter.catalogue.roofline import DECODE_CEILING
from llm_serving_exporter.gpus.ownership import Origin
from llm_serving_exporter.model.cost import CostPhase, EngineCost, TargetCost
from llm_serving_exporter.model.derived import Derived
from llm_serving_exporter.model.gpu import DRIVER_SOURCES
from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.reading import State, TargetReading, View
from llm_serving_exporter.model.sample import Attempt
from llm_serving_exporter.model.snapshot import Quality
from llm_serving_exporter.model.target import ReplicaPart, Role
from llm_serving_exporter.model.text import count_nouns
from llm_serving_exporter.render.html import NO_MARKUP, badge, facts, fill, header, join, note, row, soft, table
from llm_serving_exporter.render.numbers import (
    NOTHING,
    count,
    describe_price,
    describe_split,
    number,
    share,
    size,
    span,
    usd_to_the_cent,
)
from llm_serving_exporter.render.sentences import (
    QUALITIES,
    STATES,
    can_be_set,
    describe_identity,
    explain_pod,
    place_remedy,
    render_isolated,
    title,
    what_to_do,
    why_absent,
)
from llm_serving_exporter.web.pages.engines import render_engines, render_roofline
from llm_serving_exporter.web.pages.gpus import render_gpus

# --- The instant of the page, and how old what it shows is.


class Clock:
    """The instant of the page, and from when on a reading is too old to be shown."""

    def __init__(self, unix: float, monotonic: float, stale_after_seconds: float) -> None:
        self.unix, self.monotonic = unix, monotonic
        self._stale_after_seconds = stale_after_seconds

    def fresh(self, reading: TargetReading) -> bool:
        """Whether its figures are shown."""
        return reading.page.is_fresh(self.monotonic, self._stale_after_seconds)

    def page_age(self, reading: TargetReading) -> str:
        """How long ago the last good page came; "" where none did."""
        if reading.page.snapshot is None:
            return ""
        return span(max(0.0, self.monotonic - reading.page.snapshot.monotonic_seconds))

    def ago(self, unix: float) -> str:
        """How long ago an instant of the wall clock was."""
        return span(max(0.0, self.unix - unix))


# --- The table of all targets, where they are too many for a card each.


BADGES = {State.READY: "good", State.LOADING: "wait", State.SLEEPING: "calm", State.DOWN: "bad", State.UNKNOWN: "warn"}


def render_overview(targets: tuple[TargetReading, ...], clock: Clock) -> Markup:
    """One row a target, with what its last good page says where that is fresh."""
    columns = (
        "state",
        "engine",
        "model",
        "last page",
        "prefill, tok/s",
        "decode, tok/s",
        "running",
        "waiting",
        "KV cache",
    )
    rows = (row(_link(reading.target.name), _overview_cells_isolated(reading, clock)) for reading in targets)
    return fill(
        '<section class="card" id="targets"><div class="title"><h2>Targets</h2></div>{}</section>',
        table(header("target", columns), rows),
    )


def _link(name: str) -> Markup:
    return fill('<a href="/?target={}">{}</a>', quote(name, safe=""), name)


def list_models(reading: TargetReading) -> str:
    """The models that a target serves: two of them by name, and how many more."""
    engines = reading.page.snapshot.engines if reading.page.snapshot is not None else ()
    names = sorted({engine.model_name for engine in engines if engine.model_name}) or [reading.server.model_name]
    more = f" and {len(names) - 2} more" if len(names) > 2 else ""
    return ", ".join(names[:2]) + more


def _overview_cells_isolated(reading: TargetReading, clock: Clock) -> list[str]:
    state = badge(reading.server.state.value, BADGES[reading.server.state])
    return render_isolated(
        f"target {reading.target.name}",
        lambda: _overview_cells(reading, clock),
        lambda why: [state, why, *[NOTHING] * 7],
    )


def _overview_cells(reading: TargetReading, clock: Clock) -> list[str]:
    age = clock.page_age(reading)
    known = [
        badge(reading.server.state.value, BADGES[reading.server.state]),
        f"{reading.server.runtime} {reading.server.facts.version or ''}".strip() or NOTHING,
        list_models(reading) or NOTHING,
        f"{age} ago" if age else NOTHING,
    ]
    if not clock.fresh(reading) or reading.page.derived is None or reading.page.snapshot is None:
        return [*known, *[NOTHING] * 5]
    engines, derived = reading.page.snapshot.engines, reading.page.derived.engines

    def total(values: list[float | None]) -> float | None:
        there = [value for value in values if value is not None]
        return add_up(there) if values and len(there) == len(values) else None

    usage = [engine.kv_cache_usage_ratio for engine in engines if engine.kv_cache_usage_ratio is not None]
    fullest = f"{'≤ ' if len(usage) > 1 else ''}{share(max(usage))}" if usage else NOTHING
    return [
        *known,
        number(total([one.phase_tokens_per_second.get("prefill") for one in derived])),
        number(total([one.phase_tokens_per_second.get("decode") for one in derived])),
        count(total([one.requests_running for one in engines])),
        count(total([one.requests_waiting for one in engines])),
        fullest,
    ]


# --- What a target costs: the price in force, the unit costs of the window, where the money went since the exporter started.


MOST_ROWS = 64
_COLUMNS = (
    "prefill, $/M", "decode, $/M", "blended, $/M", "$/request", "spent", "prefill", "decode", "idle", "down", "other",
)  # fmt: skip


def render_cost(reading: TargetReading, *, fresh: bool) -> Markup:
    """Nothing where the target has no price and never had one. `fresh`: whether figures of the window are shown."""
    found = reading.cost
    if found is None or not any(one.totals.usd for one in found.engines):
        return NO_MARKUP
    rows = [row(_name(one, found), _cells(one, fresh=fresh)) for one in found.engines[:MOST_ROWS]]
    return table(header("cost", _COLUMNS), rows) + fill('<p class="facts">{}</p>', _basis(reading, found))


def _name(one: EngineCost, found: TargetCost) -> str:
    return one.model_name or "?" if len(found.engines) == 1 else f"{one.model_name or '?'} / {one.engine}"


def _cells(one: EngineCost, *, fresh: bool) -> list[str]:
    each = one.window.usd_per_million_tokens if fresh else {}
    by_phase: dict[str, float] = {}
    for (phase, _rate, _method), amount in one.totals.usd.items():
        by_phase[phase] = by_phase.get(phase, 0.0) + amount
    everything = add_up(by_phase.values())
    return [
        *(usd_to_the_cent(each.get((phase, "allocated"))) for phase in ("prefill", "decode", "blended")),
        usd_to_the_cent(one.window.usd_per_request if fresh else None),
        usd_to_the_cent(everything),
        *(share(by_phase.get(phase.value, 0.0) / everything) if everything > 0 else NOTHING for phase in CostPhase),
    ]


def _basis(reading: TargetReading, found: TargetCost) -> str:
    now = describe_price(reading, found) or "no price is in force now"
    window = span(reading.page.derived.window_seconds) if reading.page.derived is not None else "a window"
    return (
        f"{now}; per million tokens and per request over {window}, idle time included; spent since the exporter started; "
        f"{describe_split(found)}: {found.inputs}"
    )


# --- The page, and a card for each target.


REFRESH_SECONDS = 10
# above that many targets they stand in one table, and only those with a problem have a card of their own
MOST_CARDS = 20
SHOWN_FAILURES = 3
# reasons that call for no action
_ORIGINS = {
    Origin.CONFIGURED.value: "as configured",
    Origin.KUBELET.value: "by the kubelet",
    Origin.PROCESS.value: "found by its processes",
    Origin.ENVIRONMENT.value: "by its environment",
    Origin.ONLY_TARGET.value: "all that are here",
}
_ICON = Markup(
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Cpath d='M2 13V9h3v4zm4.5 0V3h3v10z"
    "M11 13V6h3v7z' fill='%233b7ddd'/%3E%3C/svg%3E"
)

# light and dark, wide and narrow, nothing loaded from anywhere
STYLE = Markup(f"\n{files(__package__).joinpath('style.css').read_text(encoding='utf-8')}")  # noqa: S704  a file of our own


def render_landing(
    view: View,
    *,
    now_unix: float,
    now_monotonic: float,
    stale_after_seconds: float,
    version: str,
    telemetry_path: str,
    links: Sequence[tuple[str, str]] = (),
    only: str = "",
) -> bytes:
    """The page as UTF-8. `links`: (label, href) of further pages, such as the documentation. `only`: the name of the one target to
    show; "" or an unknown name shows all."""
    clock = Clock(now_unix, now_monotonic, stale_after_seconds)
    pages = [
        ("Metrics", telemetry_path),
        ("Ready", "/-/ready"),
        ("Healthy", "/-/healthy"),
        ("Debug", "/debug/targets"),
        *links,
    ]
    nav = join(fill('<a href="{}">{}</a>', href, label) for label, href in pages)
    when = datetime.fromtimestamp(now_unix, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    page = fill(
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta http-equiv="refresh" content="{}"><title>llm-serving-exporter</title>'
        '<link rel="icon" href="{}"><style>{}</style></head><body>'
        '<header><div class="top"><h1>llm-serving-exporter<small>{}</small></h1><nav>{}</nav></div>{}</header>'
        "<main>{}{}{}</main><footer>As of {}; this page reloads every {} s.</footer></body></html>",
        REFRESH_SECONDS,
        _ICON,
        STYLE,
        version,
        nav,
        _summary(view),
        _exporter(view, clock),
        join(_targets(view, clock, only)),
        render_isolated("GPUs", lambda: render_gpus(view, now_monotonic), lambda why: note("bad", f"GPUs: {why}")),
        when,
        REFRESH_SECONDS,
    )
    return page.encode(errors="replace")


def _summary(view: View) -> Markup:
    states = Counter(reading.server.state for reading in view.targets)
    chips = [badge(f"{states[state]} {state.value}", kind) for state, kind in BADGES.items() if states[state]]
    targets = count_nouns(len(view.targets), "target")
    chips.insert(0, badge(targets, "plain"))
    if view.gpus is not None:
        if view.gpus.attempt.ok:
            lost = add_up(gpu.lost for gpu in view.gpus.gpus)
            chips.append(badge(count_nouns(len(view.gpus.gpus), "GPU"), "plain"))
            chips += [badge(f"{lost} GPU lost", "bad")] if lost else []
        else:
            chips.append(badge(f"{'NVML' if view.gpus.source in DRIVER_SOURCES else 'device exporter'} failed", "bad"))
    if not view.reload_ok:
        chips.append(badge("reload failed", "bad"))
    return fill('<ul class="summary">{}</ul>', join(fill("<li>{}</li>", chip) for chip in chips))


def _exporter(view: View, clock: Clock) -> Markup:
    parts = []
    if not view.reload_ok:
        since = (
            f"the one loaded {clock.ago(view.reload_unix_seconds)} ago stays in use" if view.reload_unix_seconds else ""
        )
        parts.append(
            note(
                "bad",
                f"The last reload of the configuration failed; {since}.",
                "The exporter's log lists every problem; check-config does too.",
            )
        )
    if view.discovery_problems:
        parts.append(note("warn", "What is wrong with sources of targets:", *view.discovery_problems[:10]))
    if view.waiting:
        waiting = ", ".join(f"{pod.namespace}/{pod.pod}" for pod in view.waiting[:10])
        more = f" and {len(view.waiting) - 10} more" if len(view.waiting) > 10 else ""
        number_of = f"{len(view.waiting)} pod{' waits' if len(view.waiting) == 1 else 's wait'}"
        said = f"{number_of} for a node, a volume or a network: kubectl describe pod says for what."
        parts.append(note("wait", said, waiting + more))
    if not view.targets:
        parts.append(
            note(
                "warn",
                "There is no target: none is configured, and discovery has found none.",
                "Start with --target http://localhost:8000, or list targets in --config.file. In Kubernetes annotate the engines' pods "
                'with llm-serving-exporter/scrape: "true", or select them: docs/kubernetes.md.',
            )
        )
    return join(parts)


def _targets(view: View, clock: Clock, only: str) -> Iterator[Markup]:
    shown = tuple(reading for reading in view.targets if reading.target.name == only) or view.targets
    if len(shown) > MOST_CARDS:
        yield render_overview(view.targets, clock)
        shown = tuple(
            reading for reading in view.targets if reading.server.state is not State.READY or not clock.fresh(reading)
        )
    for reading in shown[:MOST_CARDS]:
        yield _card_isolated(reading, clock)


def _card_isolated(reading: TargetReading, clock: Clock) -> Markup:
    """The target's card; one that cannot be made says so, and the others stand beside it."""
    name = reading.target.name
    return render_isolated(
        f"target {name}",
        lambda: _card(reading, clock),
        lambda why: fill(
            '<section class="card"><div class="title"><h2>{}</h2></div>{}</section>', name, note("bad", why)
        ),
    )


def _card(reading: TargetReading, clock: Clock) -> Markup:
    fresh = clock.fresh(reading)
    parts = [
        fill(
            '<div class="title"><h2>{}</h2><span title="{}">{}</span></div>',
            reading.target.name,
            STATES[reading.server.state],
            badge(reading.server.state.value, BADGES[reading.server.state]),
        ),
        _facts(reading, clock),
        _problem(reading, clock, fresh=fresh),
    ]
    if fresh and reading.page.derived is not None:
        parts += [
            render_engines(reading),
            render_roofline(reading),
            render_cost(reading, fresh=True),
            _absent(reading),
            _careful(reading.page.derived, reading.server.replica_part),
        ]
    else:
        parts.append(render_cost(reading, fresh=False))
    parts.append(_failures(reading, clock))
    return fill('<section class="card">{}</section>', join(parts))


def _facts(reading: TargetReading, clock: Clock) -> Markup:
    target = reading.target
    url = reading.server.metrics_url or target.url
    age = clock.page_age(reading)
    last = reading.page.last
    page = (
        f", {size(last.page_bytes)} in {1000 * last.duration_seconds:.0f} ms"
        if last and last.ok and last.page_bytes
        else ""
    )
    return facts(
        (
            fill("<b>{} {}</b>", reading.server.runtime, reading.server.facts.version or "")
            if reading.server.runtime
            else "",
            fill("<b>{}</b>", list_models(reading)) if list_models(reading) else "",
            f"role {reading.role.value}" if reading.role is not Role.UNIFIED else "",
            f"group {target.group}" if target.group else "",
            describe_identity(target),
            fill('<a href="{}" rel="noreferrer">{}</a>', url, url),
            f"last page {age} ago{page}" if age else "no page was read yet",
            f"engine up for {clock.ago(reading.server.start_unix_seconds)}"
            if reading.page.up and reading.server.start_unix_seconds
            else "",
            f"{count_nouns(reading.server.restarts_total, 'restart')} seen" if reading.server.restarts_total else "",
            _describe_window(reading.page.derived) if reading.page.derived and clock.fresh(reading) else "",
            _gpus_of(reading),
            _ranks_of(reading.server.replica_part) if reading.server.replica_part is not None else "",
        )
    )


def _problem(reading: TargetReading, clock: Clock, *, fresh: bool) -> Markup:
    withdrawn = ""
    if reading.page.snapshot is not None and not fresh:
        withdrawn = f"The last page is {clock.page_age(reading)} old; its figures are no longer shown."
    last, pod = reading.page.last, explain_pod(reading.server.pod, reading.server.state)
    if last is not None and last.reason is not None:
        # what Kubernetes knows is the cause, and then the general advice leads away from it
        advice = "" if pod else place_remedy(what_to_do(last.reason), reading.target)
        return note(BADGES[reading.server.state], pod, reading.page.problem or last.detail, advice, withdrawn)
    if pod:
        return note(BADGES[reading.server.state], pod, withdrawn)
    if reading.server.state is State.SLEEPING:
        return note("calm", STATES[State.SLEEPING], withdrawn)
    return note("warn", withdrawn)


def _absent(reading: TargetReading) -> Markup:
    """Every absent signal with its reason, those that somebody can act on first; signals with the same reason share a line."""
    signals = dict(reading.page.derived.signals) if reading.page.derived is not None else {}
    signals |= reading.cost.signals if reading.cost is not None else {}
    signals |= reading.page.tenants.signals if reading.page.tenants is not None else {}
    absent = [(signal, absence) for signal, absence in signals.items() if absence]
    absent.sort(key=lambda entry: not can_be_set(entry[1]))
    lacks = reading.server.missing, reading.gpus.lacks
    told = [(signal, place_remedy(why_absent(signal, absence, *lacks), reading.target)) for signal, absence in absent]
    return _by_sentence("Not available", told)


def _careful(derived: Derived, part: ReplicaPart | None) -> Markup:
    """Figures that are shown but need care; clipped quantiles say so themselves."""
    telling = [
        (signal, QUALITIES[quality])
        for signal, quality in derived.quality.items()
        if quality not in (Quality.LIVE, Quality.CLIPPED) and not derived.signals.get(signal)
    ]
    if part is not None and part.read < part.ranks:
        unread = f"{part.ranks - part.read} of the {part.ranks} ranks that share its experts are on pages that this exporter does not read"
        telling.append((DECODE_CEILING.name, f"{unread}: they are taken for as busy as the others."))
    return _by_sentence("Read with care", telling)


def _by_sentence(heading: str, told: Sequence[tuple[str, str]]) -> Markup:
    names: dict[str, list[str]] = {}
    for signal, sentence in told:
        names.setdefault(sentence, []).append(title(signal))
    if not names:
        return NO_MARKUP
    lines = join(
        fill("<li><b>{}:</b> {}</li>", ", ".join(dict.fromkeys(signals)), soft(sentence))
        for sentence, signals in names.items()
    )
    return fill('<h3>{}</h3><ul class="why">{}</ul>', heading, lines)


def _gpus_of(reading: TargetReading) -> str:
    configured = len(reading.target.gpus or ()) if reading.gpus.origin == "configured" else 0
    if len(reading.gpus.uuids) < configured:
        return f"{len(reading.gpus.uuids)} of {count_nouns(configured, 'configured GPU is', 'configured GPUs are')} visible here"
    if not reading.gpus.uuids:
        unknown = reading.gpus.total is None and reading.role is not Role.FRONTEND
        return (
            f"GPUs not known: {reading.gpus.origin}" if unknown and reading.gpus.origin not in ("", *_ORIGINS) else ""
        )
    found = _ORIGINS.get(reading.gpus.origin, reading.gpus.origin)
    return f"{count_nouns(len(reading.gpus.uuids), 'GPU')}, {found}"


def _ranks_of(part: ReplicaPart) -> str:
    of = f" of {part.replica}" if part.replica else ""
    return f"{part.shown} of the {part.ranks} ranks{of}, which share their experts"


def _failures(reading: TargetReading, clock: Clock) -> Markup:
    """The latest kinds of failure, newest first; a run of equal ones is one line."""
    latest = reversed(reading.page.recent_failures)
    runs = [
        list(run) for _, run in groupby(latest, key=lambda attempt: (attempt.stage, attempt.reason, attempt.detail))
    ]
    if runs and len(runs[0]) == 1 and runs[0][0] == reading.page.last:
        del runs[0]  # the problem of now says it already
    if not runs:
        return NO_MARKUP
    lines = join(_failure(run, clock) for run in runs[:SHOWN_FAILURES])
    return fill('<h3>Last failures</h3><ul class="why">{}</ul>', lines)


def _failure(run: Sequence[Attempt], clock: Clock) -> Markup:
    newest = run[0]
    reason = newest.reason.value.replace("_", " ") if newest.reason else ""
    often = f", {len(run)} times since {clock.ago(run[-1].at_unix_seconds)} ago" if len(run) > 1 else ""
    ago = clock.ago(newest.at_unix_seconds)
    return fill(
        '<li><b>{}</b>, {}, {} ago{}: <span class="soft">{}</span></li>',
        reason,
        newest.stage.value,
        ago,
        often,
        newest.detail,
    )


def _describe_window(derived: Derived) -> str:
    live = derived.live_window_seconds
    if live is None or live == derived.window_seconds:
        return f"figures over {span(derived.window_seconds)}"
    return f"figures over {span(live)}, of what is booked late or refreshed slowly over up to {span(derived.window_seconds)}"
