"""What the recording rules of cost make of counters: each number worked out by hand beside it."""

from collections.abc import Mapping

from tests.pack.builders import NOTHING, Grows, as_model, as_target, counter, engine, held, of_model, rounded, told
from tests.pack.cases_ttft import slo_events
from tests.pack.promtool import Sampled, attach_rules, document, rule_files

EVERY = "5m"
HOUR = 12  # samples
DAY = 24 * HOUR
_COST = "target:llm_serving_cost_usd:increase1h"
_MILLION = "model:llm_serving_cost_usd_per_million_tokens"
_H100 = 'rate="h100",method="roofline"'


def _spent(identity: str, samples: int = 80, rate: str = _H100, **by_phase: float) -> dict[str, str]:
    """USD every five minutes by phase."""
    return {
        f'llm_serving_cost_usd_total{{{identity},phase="{phase}",{rate}}}': counter(Grows(samples, by))
        for phase, by in by_phase.items()
    }


def _counts(identity: str, **each: float) -> dict[str, str]:
    """Counters without labels of their own, growth every five minutes."""
    return {f"llm_serving_{name}_total{{{identity}}}": counter(Grows(80, by)) for name, by in each.items()}


def _tokens(identity: str, prompt: float, prefill: float, decode: float) -> dict[str, str]:
    return _counts(identity, prompt_tokens=prompt, prefill_tokens=prefill, decode_tokens=decode)


def _by_phase(target: str, **usd: float) -> Mapping[str, float]:
    return {as_target(target, phase=phase, rate="h100", method="roofline"): value for phase, value in usd.items()}


def _replicas(model: str, present: float, bare: float | None, reserved: float | None) -> dict[str, str]:
    found = {f"model:llm_serving_present_replicas:sum{{{of_model(model)}}}": held((80, present))}
    for reserve, count in (("none", bare), ("nodes", reserved)):
        if count is not None:
            name = f'model:llm_serving_required_replicas:ceil{{{of_model(model)},reserve="{reserve}"}}'
            found[name] = held((80, count))
    return found


def _known(model: str, *targets: str) -> dict[str, str]:
    """Targets as some exporter knows them now."""
    found = {}
    for name in targets:
        found[f'llm_serving_target_info{{target="{name}",runtime="vllm",{of_model(model)}}}'] = held((81, 1))
        # a replica by itself
        found[f'target:llm_serving_replica:info{{target="{name}",replica_name="{name}"}}'] = held((81, 1))
    return found


_LOST = engine("lost")
_SPEND = Sampled(
    "two replicas with a price and one without, a small model, and one whose time nobody can attribute",
    told({
        # an hour is twelve times: 0.24, 0.48 and 0.72; six hours: 1.44, 2.88 and 4.32, in all 8.64
        **_spent(engine("chat", "chat-0"), prefill=0.02, decode=0.04, idle=0.06, down=0),
        # 0.12, 0.24, 0.12 and 0.48; six hours: 0.72, 1.44, 0.72 and 2.88, in all 5.76
        **_spent(engine("chat", "chat-1"), prefill=0.01, decode=0.02, idle=0.01, down=0.04),
        # six hours are 72 times: 5.76, 3.6 and 0.72 million; half of it; and what has no price counts nowhere
        **_tokens(engine("chat", "chat-0"), 80_000, 50_000, 10_000),
        **_tokens(engine("chat", "chat-1"), 40_000, 25_000, 5_000),
        **_tokens(engine("chat", "chat-2"), 80_000, 50_000, 10_000),
        # what a server cost that serves another model by now
        **_spent(engine("chat", "before-0"), idle=0),
        **_known("chat", "chat-0", "chat-1", "chat-2"),
        **_known("small", "small-0"),
        **_known("other", "before-0"),
        # 72 x 12,500 = 900,000 tokens for 72 x 0.01 = 0.72 USD
        **_spent(engine("small"), prefill=0.005, decode=0.005),
        **_tokens(engine("small"), 10_000, 10_000, 2_500),
        # 72 x 20,000 = 1.44 million for 7.2 USD
        **_spent(_LOST, prefill=0, decode=0, idle=0, unattributed=0.1),
        **_tokens(_LOST, 15_000, 15_000, 5_000),
        f'llm_serving_gpu_seconds_total{{{engine("chat", "chat-0")},state="busy",rate="h100"}}': counter(Grows(80, 400)),
        f'llm_serving_gpu_seconds_total{{{engine("chat", "chat-0")},state="idle",rate="h100"}}': counter(Grows(80, 200)),
        # without a price there are GPU seconds all the same
        f'llm_serving_gpu_seconds_total{{{engine("chat", "chat-2")},state="busy",rate=""}}': counter(Grows(80, 300)),
        **_counts(
            engine("chat", "chat-0"), energy_joules=1e5, energy_cost_usd=0.03, carbon_grams=10, prefix_cache_savings_usd=0.005,
            cached_prompt_tokens=30_000,
        ),
        f'llm_serving_requests_finished_total{{{engine("chat", "chat-0")},reason="stop"}}': counter(Grows(80, 100)),
        f'llm_serving_requests_finished_total{{{engine("chat", "chat-0")},reason="error"}}': counter(Grows(80, 5)),
        **slo_events(engine("chat", "chat-0", "0"), "ttft", counter(Grows(80, 90)), counter(Grows(80, 10))),
        **slo_events(engine("chat", "chat-0", "1"), "ttft", counter(Grows(80, 90)), counter(Grows(80, 10))),
        # four run, two are needed, three with a reserve
        **_replicas("chat", 4, 2, 3),
        **_replicas("small", 2, 2, 3),
        # nobody knows what is needed
        **_replicas("lost", 2, None, None),
    }),
    "6h32m",
    {
        rounded(f'{_COST}{{model_name="chat"}}'): {
            **_by_phase("chat-0", prefill=0.24, decode=0.48, idle=0.72, down=0),
            **_by_phase("chat-1", prefill=0.12, decode=0.24, idle=0.12, down=0.48),
            **_by_phase("before-0", idle=0),
        },
        rounded('target:llm_serving_gpu_seconds:increase1h{target="chat-0"}'): {
            as_target("chat-0", state="busy", rate="h100"): 4800,
            as_target("chat-0", state="idle", rate="h100"): 2400,
        },
        rounded('sum by (target) (target:llm_serving_gpu_seconds:increase1h{rate=""})'): {'{target="chat-2"}': 3600},
        # 1.44 + 0.96 + 0.12 + 1.2, and 0.36 of energy
        rounded("fleet:llm_serving_cost_usd:increase1h"): {"{}": 4.08},
        rounded('model:llm_serving_cost_usd:increase1h{model_name="chat"}'): {
            as_model("chat", phase="prefill"): 0.36,
            as_model("chat", phase="decode"): 0.72,
            as_model("chat", phase="idle"): 0.84,
            as_model("chat", phase="down"): 0.48,
        },
        rounded("target:llm_serving_energy_joules:increase1h"): {as_target("chat-0"): 1.2e6},
        rounded("target:llm_serving_energy_cost_usd:increase1h"): {as_target("chat-0"): 0.36},
        rounded("target:llm_serving_carbon_grams:increase1h"): {as_target("chat-0"): 120},
        rounded("target:llm_serving_prefix_cache_savings_usd:increase1h"): {as_target("chat-0"): 0.06},
        rounded('target:llm_serving_phase_tokens:increase1h{target="chat-0"}'): {
            as_target("chat-0", phase="prefill"): 600_000,
            as_target("chat-0", phase="decode"): 120_000,
        },
        rounded('target:llm_serving_prompt_tokens:increase1h{target="chat-1"}'): {as_target("chat-1"): 480_000},
        rounded("target:llm_serving_cached_prompt_tokens:increase1h"): {as_target("chat-0"): 360_000},
        rounded("target:llm_serving_requests_finished:increase1h"): {as_target("chat-0"): 1260},
        rounded("target:llm_serving_slo_events:increase1h"): {
            as_target("chat-0", slo="ttft", outcome="good"): 2160,
            as_target("chat-0", slo="ttft", outcome="bad"): 240,
        },
        # 1.44 and 2.88 of 4.32 bear 8.64; 0.72 and 1.44 of 2.16 bear 5.76; all four together are the spend of 14.4
        rounded("target:llm_serving_allocated_cost_usd:increase6h{model_name=\"chat\"}"): {
            as_target("chat-0", phase="prefill"): 2.88,
            as_target("chat-0", phase="decode"): 5.76,
            as_target("chat-1", phase="prefill"): 1.92,
            as_target("chat-1", phase="decode"): 3.84,
        },
        rounded('sum(target:llm_serving_cost_usd:increase6h{model_name="chat"})'): {"{}": 14.4},
        # 3.6 + 1.8, 0.72 + 0.36, and 5.76 + 2.88 + 1.08 million
        rounded('model:llm_serving_priced_tokens:increase6h{model_name="chat"}'): {
            as_model("chat", phase="prefill"): 5.4e6,
            as_model("chat", phase="decode"): 1.08e6,
            as_model("chat", phase="blended"): 9.72e6,
        },
        rounded(f'{_MILLION}:ratio6h{{model_name="chat"}}'): {
            as_model("chat", phase="prefill", basis="busy"): 0.4,  # 2.16 / 5.4
            as_model("chat", phase="decode", basis="busy"): 4,  # 4.32 / 1.08
            as_model("chat", phase="blended", basis="busy"): 0.6667,  # 6.48 / 9.72
            as_model("chat", phase="prefill", basis="allocated"): 0.8889,  # 4.8 / 5.4
            as_model("chat", phase="decode", basis="allocated"): 8.8889,  # 9.6 / 1.08
            as_model("chat", phase="blended", basis="allocated"): 1.4815,  # 14.4 / 9.72
        },
        # not a token for nothing: of which phase the time was is not known, that it was paid for is
        rounded(f'{_MILLION}:ratio6h{{model_name="lost"}}'): {as_model("lost", phase="blended", basis="allocated"): 5},
        rounded(f'{_MILLION}:ratio6h{{model_name="small",phase="blended",basis="allocated"}}'): {
            as_model("small", phase="blended", basis="allocated"): 0.8
        },
        # of less than a million tokens nothing is compared
        rounded(f"{_MILLION}:ratio6h_compared"): {as_model("chat"): 1.4815, as_model("lost"): 5},
        # the day has had six hours so far
        rounded('model:llm_serving_cost_usd:increase1d{model_name="chat",phase="idle"}'): {as_model("chat", phase="idle"): 5.04},
        # 5.04 of 14.4, 0 of 0.72 is not there because nothing idle was ever counted, 0 of 7.2
        rounded("model:llm_serving_idle_cost:ratio1d"): {as_model("chat"): 0.35, as_model("lost"): 0},
        # 5.04 of 14.4 + 0.72 + 7.2
        rounded("fleet:llm_serving_idle_cost:ratio1d"): {"{}": 0.2258},
        # 1.44 + 0.96 of two; the third has no price, and the one before serves another model
        rounded('model:llm_serving_replica_cost_usd:mean1h{model_name="chat"}'): {as_model("chat"): 1.2},
        rounded('model:llm_serving_present_replicas:avg1h{model_name="chat"}'): {as_model("chat"): 4},
        rounded('model:llm_serving_required_replicas:max1h{model_name="chat"}'): {
            as_model("chat", reserve="none"): 2,
            as_model("chat", reserve="nodes"): 3,
        },
        # one of four more than needed; none of two, where not even the reserve runs; unknown is not 0
        rounded("model:llm_serving_overprovisioned_cost_usd:sum1h"): {as_model("chat"): 1.2, as_model("small"): 0},
        rounded("model:llm_serving_reserve_cost_usd:sum1h"): {as_model("chat"): 1.2, as_model("small"): 0},
    },
    interval=EVERY,
)  # fmt: skip


def _as(instance: str, series: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("{", f'{{instance="{instance}",'): values for name, values in series.items()}


def _near(expression: str, usd: float) -> str:
    """1 where it is that within 1 %."""
    return f"abs({expression} / {usd:g} - 1) < bool 0.01"


_AGAIN = f'llm_serving_cost_usd_total{{{engine("again")},phase="idle",{_H100}}}'
_EXPORTERS = Sampled(
    "exporters that disagree, restart, come and go",
    told(
        {
            # 0.1 USD every five minutes: one of a pair cannot reach what the other reads
            **_as("a", _spent(engine("pair"), down=0.1, decode=0, idle=0)),
            **_as("b", _spent(engine("pair"), down=0, decode=0.06, idle=0.04)),
            # the same where it never learnt which model it is
            **_as("a", _spent(engine("", "blind-0"), down=0.1)),
            **_as("b", _spent(engine("blind"), decode=0.06, idle=0.04)),
            # one of a pair goes by yesterday's price for the whole time
            **_as("a", _spent(engine("rates"), rate='rate="old",method="roofline"', idle=0.1)),
            **_as("b", _spent(engine("rates"), rate='rate="new",method="roofline"', idle=0.12)),
            # one of a pair starts after four hours and a half
            **_as("a", _spent(engine("late"), idle=0.1)),
            **_as("b", {name: f"{NOTHING}x54 {counter(Grows(25, 0.1))}" for name in _spent(engine("late"), idle=0.1)}),
            # an exporter that is replaced by another, with an address of its own, in the middle of the last hour
            **_as("a", {name: f"{values} stale" for name, values in _spent(engine("moved"), 73, idle=0.1).items()}),
            **_as("b", {name: f"{NOTHING}x73 {counter(Grows(7, 0.1))}" for name in _spent(engine("moved"), idle=0.1)}),
            # it falls to 0 within the last hour, and goes on: eleven of twelve steps
            _AGAIN: counter(Grows(71, 0.1), Grows(9, 0.1, True)),
            # half an hour, six hours ago
            **{name: f"{values} stale" for name, values in _spent(engine("gone"), 6, idle=0.1).items()},
            # two engines of one target
            **_spent(engine("wide", number="0"), idle=0.05),
            **_spent(engine("wide", number="1"), idle=0.05),
        }
    ),
    "6h32m",
    {
        # 1.2 and 1.2 USD of an hour that was worth 1.2: everybody is believed by half
        rounded(f'{_COST}{{model_name="pair"}}'): {
            as_target("pair-0", "pair", phase=phase, rate="h100", method="roofline"): usd
            for phase, usd in (("down", 0.6), ("decode", 0.36), ("idle", 0.24))
        },
        rounded(f'sum({_COST}{{target="blind-0"}})'): {"{}": 1.2},
        # 1.2 and 1.44: everybody is believed by half
        rounded(f'sum({_COST}{{model_name="rates"}})'): {"{}": 1.32},
        # one after the other: all of the hour but the five minutes in between
        f'abs(sum({_COST}{{model_name="moved"}}) / 1.15 - 1) < bool 0.05': {"{}": 1},
        rounded(f'sum({_COST}{{model_name="late"}})'): {"{}": 1.2},
        _near(f'sum({_COST}{{model_name="again"}})', 1.1): {"{}": 1},
        rounded(f'sum({_COST}{{model_name="wide"}})'): {"{}": 1.2},
        # no series now; of the six hours the first has its 0.6, and half a step that increase() adds at the end
        rounded(f'sum({_COST}{{model_name="gone"}})'): {},
        rounded('sum(target:llm_serving_cost_usd:increase6h{model_name="gone"})'): {"{}": 0.65},
    },
    interval=EVERY,
    doubled=False,
)


def _by_minute(name: str, *spans: tuple[int, float | None], passed: float = 0) -> dict[str, str]:
    """One exporter's counters, 0.02 USD and 60 GPU seconds a minute: of each span its minutes and the USD with which it begins; None:
    nobody scrapes it. `passed`: prompt tokens a minute, which the engine counts, whoever reads it."""
    of = engine(name)

    def write(a_minute: float, begins: float | None = None) -> str:
        values, passed_minutes = [], 0
        for minutes, usd in spans:
            begin = None if usd is None else passed_minutes * a_minute if begins is None else usd * begins
            # what is gone is marked once, as Prometheus marks it
            values.append(
                f"stale {NOTHING}x{2 * minutes - 1}"
                if begin is None
                else f"{begin:.9g}+{a_minute / 2:.9g}x{2 * minutes - 1}"
            )
            passed_minutes += minutes
        return " ".join(values)

    found = {
        f'llm_serving_cost_usd_total{{{of},phase="idle",{_H100}}}': write(0.02, 1),
        f'llm_serving_gpu_seconds_total{{{of},state="idle",rate="h100"}}': write(60, 3000),
    }
    if passed:
        found[f"llm_serving_prompt_tokens_total{{{of}}}"] = write(passed)
    return found


# 1.2 USD an hour, looked at when the hour from 1:02 to 2:02 is over
_HANDED_ON = Sampled(
    "halves of pairs that were silent for half an hour, and targets that went to another shard",
    told(
        {
            # it was away, and began at 0: its snapshot was too old to be the newest for certain
            **_as("a", _by_minute("halves", (130, 0), passed=600)),
            **_as("b", _by_minute("halves", (75, 0), (30, None), (25, 0), passed=600)),
            # it counted on, and nobody could scrape it; then it was the other one's turn
            **_as("a", _by_minute("unseen", (130, 0), passed=600)),
            **_as("b", _by_minute("unseen", (75, 0), (30, None), (25, 2.1), passed=600)),
            **_as("a", _by_minute("turns", (65, 0), (20, None), (45, 1.7), passed=600)),
            **_as("b", _by_minute("turns", (90, 0), (20, None), (20, 2.2), passed=600)),
            # it was killed and has booked the two minutes; it was killed and has not
            **_as("a", _by_minute("killed", (130, 0))),
            **_as("b", _by_minute("killed", (80, 0), (2, None), (48, 1.64))),
            **_as("a", _by_minute("lost", (130, 0))),
            **_as("b", _by_minute("lost", (80, 0), (2, None), (48, 0))),
            # one died in the middle, the other had come before it: half an hour with both of them
            **_as("a", _by_minute("overlap", (105, 0), (25, None), passed=600)),
            **_as("b", _by_minute("overlap", (74, None), (56, 0), passed=600)),
            # a shard gives it up, and the next one begins at 0 at once
            **_as("a", _by_minute("shards", (92, 0), (38, None), passed=600)),
            **_as("b", _by_minute("shards", (91, None), (39, 0), passed=600)),
            # the only exporter starts again after a minute, and has booked it
            **_as("a", _by_minute("booked", (90, 0), (1, None), (39, 1.82))),
            # and after half an hour, which is left out
            **_as("a", _by_minute("away", (75, 0), (30, None), (25, 1.5))),
        }
    ),
    "2h2m",
    {
        **{
            _near(f'sum({_COST}{{model_name="{name}"}})', 1.2): {"{}": 1}
            for name in ("halves", "unseen", "turns", "killed", "lost", "overlap", "shards", "booked")
        },
        **{
            _near(f'sum(target:llm_serving_prompt_tokens:increase1h{{model_name="{name}"}})', 36_000): {"{}": 1}
            for name in ("halves", "unseen", "turns", "overlap", "shards")
        },
        # 13 minutes before and 17 after
        _near(f'sum({_COST}{{model_name="away"}})', 0.6): {"{}": 1},
    },
    interval="30s",
    doubled=False,
)

# a card of 3.6 USD an hour, 0.3 every five minutes: three quarters of it are chat's, a quarter is code's; of both a fifth is held by
# processes of no target. Each is read by a pair of exporters
_ONE_CARD = Sampled(
    "two engines on one card are paid once",
    told({
        **_spent(engine("chat"), prefill=0.06, decode=0.09, idle=0.03, unattributed=0.045, down=0),
        **_spent(engine("code"), prefill=0, decode=0, idle=0.06, unattributed=0.015, down=0),
        **{
            f'llm_serving_gpu_seconds_total{{{engine(name)},state="{state}",rate="h100"}}': counter(Grows(80, seconds))
            for name, state, seconds in (
                ("chat", "busy", 150), ("chat", "idle", 30), ("chat", "unknown", 45), ("code", "idle", 60), ("code", "unknown", 15),
            )
        },
        **_counts(engine("chat"), energy_joules=150_000),
        **_counts(engine("code"), energy_joules=50_000),
        **_known("chat", "chat-0"),
        **_known("code", "code-0"),
        **{
            f'llm_serving_target_gpus{{target="{name}-0",gpu_name="H100 SXM 80GB"}}': held((81, part))
            for name, part in (("chat", 0.75), ("code", 0.25))
        },
    }),
    "6h32m",
    {
        rounded("fleet:llm_serving_cost_usd:increase1h"): {"{}": 3.6},
        rounded("sum(target:llm_serving_cost_usd:increase1h)"): {"{}": 3.6},
        rounded("sum by (model_name) (model:llm_serving_cost_usd:increase1h)"): {'{model_name="chat"}': 2.7, '{model_name="code"}': 0.9},
        rounded("sum(target:llm_serving_gpu_seconds:increase1h)"): {"{}": 3600},
        rounded("sum(target:llm_serving_energy_joules:increase1h)"): {"{}": 2.4e6},
        # idle: 0.09 of 0.3
        rounded("fleet:llm_serving_idle_cost:ratio1d"): {"{}": 0.3},
    },
    interval=EVERY,
)  # fmt: skip

# as often as the groups say; groups of one moment have no order, so that one may read what another recorded at the moment before
SAMPLES = {
    "cost.samples.yml": attach_rules(
        document((), (_SPEND, _EXPORTERS, _HANDED_ON, _ONE_CARD), "2m"), rule_files("cost")[:1], "cost"
    )
}


# --- over days, looked at after four ------------------------------------------------------------------------------------------------------


def _compared(model: str, *spans: tuple[int, float | str]) -> dict[str, str]:
    return {f"{_MILLION}:ratio6h_compared{{{of_model(model)}}}": held(*spans)}


def _idle_days(model: str, idle: float, decode: float) -> dict[str, str]:
    return {
        f'model:llm_serving_cost_usd:increase1h{{{of_model(model)},phase="{phase}"}}': held((5 * DAY, usd))
        for phase, usd in (("idle", idle), ("decode", decode))
    }


_WEEK = Sampled(
    "what is usual, and the pace of a week",
    {
        # a day at 2, two at 2.5 and one at 9
        **_compared("chat", (DAY, 2), (2 * DAY, 2.5), (2 * DAY, 9)),
        # first seen with tokens enough two days ago, whatever its targets did before
        **_compared("young", (2 * DAY, NOTHING), (3 * DAY, 2)),
        f"model:llm_serving_targets:count{{{of_model('young')}}}": held((5 * DAY, 2)),
        # 48 hours at 4, a day that nobody saw, 25 hours at 8: (192 + 200) / 73. What was not seen is not 0
        "fleet:llm_serving_cost_usd:increase1h{}": held((2 * DAY - 2, 4), (DAY + 2, NOTHING), (2 * DAY, 8)),
        **_idle_days("chat", 3, 1),
        **_idle_days("busy", 1, 4),
    },
    "96h2m",
    {
        f"{_MILLION}:median7d * 1": {as_model("chat"): 2.5},
        rounded("fleet:llm_serving_cost_usd_per_hour:avg7d"): {"{}": 5.3699},
        rounded("model:llm_serving_idle_cost:ratio1d"): {as_model("chat"): 0.75, as_model("busy"): 0.2},
        # 4 of 9
        rounded("fleet:llm_serving_idle_cost:ratio1d"): {"{}": 0.4444},
    },
    interval=EVERY,
    doubled=False,
)


def _hourly(model: str, *each: float | None) -> dict[str, str]:
    """Means over an hour, of each day the one from 11:00 to 12:00, which is there at noon; 1 at every other moment. None: a day before."""
    days = [held((143, 1), (2, value), (143, 1)) if value is not None else f"{NOTHING}x{DAY}" for value in each]
    return {f"model:llm_serving_tokens:rate1h{{{of_model(model)}}}": " ".join(days)}


# looked at on the eighth day at noon
_PAST_HOUR = Sampled(
    "the hour that ends now, on other days",
    {
        **_hourly("chat", 70, 10, 20, 30, 40, 50, 60, 0),
        **_hourly("three", None, None, None, None, 40, 60, 50, 0),
        # two days are no median
        **_hourly("two", None, None, None, None, None, 60, 50, 0),
    },
    "180h2m",
    {"model:llm_serving_tokens:past_hour_median7d * 1": {as_model("chat"): 40, as_model("three"): 50}},
    interval=EVERY,
    doubled=False,
)

OF_DAYS = (_WEEK, _PAST_HOUR)
