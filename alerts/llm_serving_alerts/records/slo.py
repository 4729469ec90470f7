"""Objectives: good and bad events over the windows of the burn rates, and by whose clock first tokens count."""

from __future__ import annotations

from collections.abc import Iterator

from llm_serving_alerts.promql import DAY, ENGINE, HOUR, MINUTE, MODEL, WEEK, Dialect, seconds_text, series
from llm_serving_alerts.records.baselines import INTERVAL_SECONDS
from llm_serving_alerts.rules import MINUTELY_SECONDS, Group, Record, write_records
from llm_serving_alerts.settings import Settings
from llm_serving_exporter.model.target import Role

# --- Objectives: good and bad events over the windows of the burn rates, kept apart so that any of them can be added up.

BASE_SECONDS = 300.0
# three rules each: see rules.MOST_RULES
_WINDOWS_A_GROUP = 6
# an hour is nothing of a fortnight: what no alert reads is added up by the hour, so that a month is 720 steps and not 8,640
_FORTNIGHT_SECONDS = 2 * WEEK
EVENTS = "model:llm_serving_slo_events:increase{window}"
BASE_EVENTS = EVENTS.format(window=seconds_text(BASE_SECONDS))
BAD = "model:llm_serving_slo_bad:increase{window}"
RATIO = "model:llm_serving_slo_bad:ratio_increase{window}"
_GOOD = "model:llm_serving_slo_good:increase5m"
IN_A_ROW = "model:llm_serving_slo_bad:in_a_row"
GOOD_AGE, _BAD_AGE = "model:llm_serving_slo_good_age_seconds:min", "model:llm_serving_slo_bad_age_seconds:min"
# between one window that failures in a row are looked for in and the next, and the longest
ROW_STEP_SECONDS, _ROW_SECONDS = HOUR / 2, 6 * HOUR
_ROW_WINDOWS = (
    *(minutes * MINUTE for minutes in (15, 30, 45, 60, 75, 90, 105)),
    *(hours * HOUR / 2 for hours in range(4, 13)),
)
# an increase is an estimate: of one event it is no less than this
_ONE_EVENT = 0.5


def windows(settings: Settings) -> tuple[float, ...]:
    """Every window of the burn rates and the period, in seconds, ascending."""
    seconds = {settings.period_seconds, BASE_SECONDS}
    for pairs in settings.burn.values():
        for pair in pairs:
            seconds |= {pair.long_seconds, pair.short_seconds}
    return tuple(sorted(seconds))


def slo(dialect: Dialect, settings: Settings) -> tuple[Group, ...]:
    """Events of 5m from the counters; longer windows are sums of those, so that three days do not read every scrape of every engine."""
    known = windows(settings)
    # a day and more change little from one scrape to the next
    quick, slow = ([window for window in known if (window >= DAY) is long] for long in (False, True))
    in_windows = tuple(
        Group(
            f"llm-serving.slo.{seconds_text(part[0])}-{seconds_text(part[-1])}",
            tuple(rule for window in part for rule in _of_window(dialect, window, known)),
            INTERVAL_SECONDS if part[0] >= DAY else MINUTELY_SECONDS,
        )
        for each in (quick, slow)
        for part in (each[start : start + _WINDOWS_A_GROUP] for start in range(0, len(each), _WINDOWS_A_GROUP))
    )
    return (*in_windows, Group("llm-serving.slo.in-a-row", tuple(_in_a_row(dialect)), MINUTELY_SECONDS))


def _of_window(dialect: Dialect, window: float, known: tuple[float, ...]) -> Iterator[Record]:
    """Good and bad together, bad, and their ratio: evaluated at one moment."""
    by, text = dialect.labels(*MODEL, "slo"), seconds_text(window)
    identity = (*ENGINE, "slo", "outcome", "source", "threshold")
    for name, matchers, about in ((EVENTS, "", "events that count"), (BAD, 'outcome="bad"', "bad events")):
        if window == BASE_SECONDS:
            increase = dialect.one(dialect.increase(series("slo_events_total", matchers), BASE_SECONDS), *identity)
            yield Record(
                name.format(window=text), f"sum by ({by}) ({increase})", f"{about} of an objective over {text}"
            )
            continue
        step = _step_seconds(window, known)
        total = dialect.apply_over_time("sum_over_time", name.format(window=seconds_text(step)), window, step)
        yield Record(name.format(window=text), total, f"{about} over {text}")
    share = f"{BAD.format(window=text)} / ({EVENTS.format(window=text)} > 0)"
    yield Record(RATIO.format(window=text), share, f"share of bad events over {text}")


def _in_a_row(dialect: Dialect) -> Iterator[Record]:
    """How many requests failed since the last that did not. Of few requests no share can be told, but that all of them fail can."""
    by = dialect.labels(*MODEL, "slo")
    good = dialect.increase(series("slo_events_total", slo="errors", outcome="good"), BASE_SECONDS)
    each = dialect.one(good, *ENGINE, "slo", "outcome", "source", "threshold")
    yield Record(_GOOD, f"sum by ({by}) ({each})", "requests that were answered, over 5m")
    bad = f'{BAD.format(window=seconds_text(BASE_SECONDS))}{{slo="errors"}}'
    for age, record, about in ((GOOD_AGE, _GOOD, "was answered"), (_BAD_AGE, bad, "failed")):
        seen = dialect.apply_over_time("max_over_time", f"timestamp({record} > {_ONE_EVENT:g})", _ROW_SECONDS, MINUTE)
        longest = seconds_text(_ROW_SECONDS)
        yield from write_records(f"""
            ## how long ago a request {about}, in seconds; absent where none did within {longest}
            {age} = {dialect.age(seen)}
        """)
    rows = []
    for window in _ROW_WINDOWS:
        # a step of this very moment may show what was recorded at the one before, and count that twice
        steps = dialect.apply_over_time("sum_over_time", bad, window, BASE_SECONDS)
        failed = f"{steps[:-1]} offset {dialect.duration(MINUTE)})"
        # requests that came long ago and no more say nothing about now
        row = (
            f"({failed} unless on ({by}) {GOOD_AGE} < {dialect.length(window + MINUTE)}"
            f" unless on ({by}) {_BAD_AGE} > {dialect.length(window / 2)})"
        )
        rows.append(f'label_replace({row}, "window", "{seconds_text(window)}", "", "")')
    about = f"requests that failed within {seconds_text(_ROW_SECONDS)} at most, where none was answered meanwhile"
    yield Record(IN_A_ROW, f"max by ({by}) ({' or '.join(rows)})", about)


def _step_seconds(window: float, known: tuple[float, ...]) -> float:
    hourly = window >= _FORTNIGHT_SECONDS and HOUR in known and window % HOUR == 0
    return HOUR if hourly else BASE_SECONDS


# --- Whose time to first token the objective goes by: the front door's, where it is the client's and covers enough, else the engines'.
#
# Events of a front door are of the client's clock only: the exporter counts no others. Those of both clocks are kept apart over every
# window, so that a window is of one clock from its first second to its last, and a choice only says which of the two is read. It changes
# only once the same was true for the whole of the longest window that an alert looks at.

FRONT, ENGINES = 'role="frontend"', 'role!="frontend"'
# whose role an alert has that goes by a front door: the first of these that counts first tokens. Users wait once, whatever is split
_COUNTS_FOR = (Role.PREFILL, Role.UNIFIED, Role.DECODE)
# of the requests that the engines finished, whose first tokens the front door has timed
ENOUGH = 0.5
COVERED = "model:llm_serving_front_door_first_tokens:ratio1h"
COVERS = "model:llm_serving_front_door_covers:bool"
# 1 where the front door is gone by in alerts whose longest window this is, 0 where it is not, though there is one
CHOSEN = "model:llm_serving_ttft_front_door:held{window}"
CLOCK = "model:llm_serving_ttft_clock:held{window}"
_EVENTS = "model:llm_serving_slo_events:increase{window}"
_FINISHED = "model:llm_serving_requests_finished:rate5m"
_RATE_SECONDS = 300.0
# how long a record that reads itself may be without a value
_GAP_SECONDS = 30 * MINUTE


def longest(settings: Settings, speed: str) -> float:
    """The longest window of an alert, in seconds."""
    return max(window.long_seconds for window in settings.burn[speed])


def first_tokens(dialect: Dialect, settings: Settings) -> tuple[Group, ...]:
    """Empty without an objective for first tokens."""
    if settings.slo["ttft"].threshold_seconds is None:
        return ()
    spans = sorted({*(longest(settings, speed) for speed in settings.burn), settings.period_seconds})
    rules = [*_covers(dialect, spans[-1])]
    for span in spans:
        rules += [_chosen(dialect, span), _clock(dialect, span)]
    return (Group("llm-serving.slo.first-tokens", tuple(rules), MINUTELY_SECONDS),)


def _ttft(window: str, matcher: str) -> str:
    return f'{_EVENTS.format(window=window)}{{slo="ttft",{matcher}}}'


def _covers(dialect: Dialect, remembered: float) -> Iterator[Record]:
    by = dialect.labels("model_name")
    timed = dialect.apply_over_time("sum_over_time", _ttft("5m", FRONT), HOUR, _RATE_SECONDS)
    # with split pools both sides finish a request
    finished = dialect.apply_over_time("sum_over_time", f'{_FINISHED}{{role!~"frontend|prefill"}}', HOUR, _RATE_SECONDS)
    served = f"sum by ({by}) ({finished}) > 0"
    # one that has gone is remembered as long as any window may be of it
    before = f"({dialect.apply_over_time('max_over_time', COVERS, remembered, HOUR)} > 0)"
    last = f"last_over_time({COVERS}[{dialect.duration(_GAP_SECONDS)}])"
    yield from write_records(f"""
        ## first tokens that front doors timed for their clients, per request that the engines finished, over 1h
        {COVERED} = sum by ({by}) ({timed}) / on ({by}) (sum by ({by}) ({finished}) * {_RATE_SECONDS:g} > 0)
        ## 1 where front doors cover at least half of what a model's engines finish, 0 where not; while nothing is finished, what it was
        {COVERS} = ({COVERED} >= bool {ENOUGH:g}) or on ({by}) ({served} and on ({by}) {before}) * 0
          or on ({by}) ({last} and on ({by}) {_ttft("5m", ENGINES)})
    """)


def _chosen(dialect: Dialect, span: float) -> Record:
    by, text = dialect.labels("model_name"), seconds_text(span)
    record = CHOSEN.format(window=text)
    # a month by the hour, as other sums of it
    step = HOUR if span >= 2 * WEEK else _RATE_SECONDS
    least, most = (dialect.apply_over_time(f"{how}_over_time", COVERS, span, step) for how in ("min", "max"))
    known = f"last_over_time({COVERS}[{dialect.duration(_GAP_SECONDS)}] offset {dialect.duration(span)})"
    before = f"last_over_time({record}[{dialect.duration(_GAP_SECONDS)}])"
    return Record(
        record,
        f"({least} == 1 and on ({by}) {known}) or on ({by}) ({most} == 0)"
        f" or on ({by}) ({before} and on ({by}) {COVERS}) or on ({by}) {COVERS} * 0",
        f"1 where first tokens count as front doors time them, which covered enough for all of {text}; 0 once they did not for as long",
    )


def _clock(dialect: Dialect, span: float) -> Record:
    by, text = dialect.labels("model_name"), seconds_text(span)
    chosen = f"{CHOSEN.format(window=text)} == 1"
    front, engines = (_ttft(text, matcher) for matcher in (FRONT, ENGINES))

    def tell(series: str, clock: str) -> str:
        return f'label_replace(label_replace({series} * 0 + 1, "counts_for", "$1", "role", "(.*)"), "clock", "{clock}", "", "")'

    # an engines' role stays on what the front door timed for them: an alert keeps its identity
    behind = f" or on ({by}) ".join(_ttft(text, f'role="{role}"') for role in _COUNTS_FOR)
    instead = f'label_replace(({behind}) * 0 + 1 and on ({by}) {chosen}, "counts_for", "$1", "role", "(.*)")'
    instead = f'label_replace(label_replace({instead}, "role", "frontend", "", ""), "clock", "front door", "", "")'
    alone = f"({front} unless on ({by}) {engines})"
    return Record(
        CLOCK.format(window=text),
        f"{tell(f'({engines} unless on ({by}) {chosen})', 'engines')} or {tell(alone, 'front door')} or {instead}",
        f"1 by the role whose first tokens count over {text}, and the role that they count for, of split pools prefill",
    )


def go_by(dialect: Dialect, span: float, series: str) -> str:
    """Series by model and objective of first tokens, those of the clock that is gone by, under the role that it is gone by for."""
    # the clock has a row for each role that it counts for; around a change both clocks may be seen for a while
    clock = CLOCK.format(window=seconds_text(span))
    joined = f"{clock} * on ({dialect.labels(*MODEL)}) group_left (slo) ({series})"
    one = f"max by ({dialect.labels('model_name', 'counts_for', 'slo')}) ({joined})"
    return f'label_replace(label_replace({one}, "role", "$1", "counts_for", "(.+)"), "counts_for", "", "", "")'
