"""Tenants of front doors: who they are on each gateway's page, what is counted of them, and what is never published."""

import hashlib
import hmac
import itertools
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from llm_serving_exporter.catalogue import BY_NAME
from llm_serving_exporter.catalogue.spec import PREFIX
from llm_serving_exporter.engines.registry import RUNTIMES
from llm_serving_exporter.expose import serving
from llm_serving_exporter.expose.families import Families
from llm_serving_exporter.expose.serving import add_tenants
from llm_serving_exporter.model.reading import TargetReading, View
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.sample import FailureReason, Layout, Samples, SeriesKey
from llm_serving_exporter.model.snapshot import Absence, Snapshot
from llm_serving_exporter.model.target import Target
from llm_serving_exporter.model.tenants import OTHER, UNLABELLED, WITHHELD, TenantKind, TenantSettings
from llm_serving_exporter.model.text import escape_label_value
from llm_serving_exporter.settings.config import Config, TenantsConfig
from llm_serving_exporter.targets.host import TargetHost
from llm_serving_exporter.targets.tenants import HEX_DIGITS, MOST_GONE, TenantCounter, TenantNames
from llm_serving_exporter.web.pages.debug import answer_debug_targets
from tests.support.builders.landingpage import landing_bytes
from tests.support.builders.recordings import recording
from tests.support.paths import TESTS
from tests.support.rows import check_rows
from tests.support.servers.replica import UNIX_START, Replica, readings

# --- Tenants of front doors: who they are on each gateway's page, what is counted of them, and what is never published


TEAMS = TenantsConfig(TenantKind.TEAM)
PROMPT, CACHED = "tenant_prompt_tokens_total", "tenant_cached_prompt_tokens_total"
DECODE, REQUESTS = "tenant_decode_tokens_total", "tenant_requests_finished_total"
SETTLED = 12  # ticks of 10 s: past the 20 intervals of 5 s in which a fall may still be another worker

Counts = dict[tuple[str, str], dict[str, float]]


def counts_of(reading: TargetReading) -> Counts:
    return {(row.model_name, row.tenant): dict(row.counts) for row in reading.page.tenants.rows}


def litellm(tokens: dict[tuple[str, str], float], label: str = "team_alias") -> str:
    """A page of LiteLLM with prompt tokens by (model, tenant); half as many are generated."""
    lines = []
    for family, share in (("input", 1.0), ("output", 0.5)):
        lines.append(f"# TYPE litellm_{family}_tokens_metric_total counter")
        for (model, tenant), value in tokens.items():
            named = {
                "team_alias": "None",
                "team": "None",
                "api_key_alias": "None",
                "end_user": "None",
                "user_email": "x@acme.org",
            }
            named[label] = tenant
            labels = ",".join(f'{key}="{escape_label_value(text)}"' for key, text in named.items())
            lines.append(f'litellm_{family}_tokens_metric_total{{{labels},requested_model="{model}"}} {value * share}')
    latency = "litellm_request_total_latency_metric"
    named = '{requested_model="m"}'
    lines += [f"# TYPE {latency} histogram", f'{latency}_bucket{{requested_model="m",le="+Inf"}} 1', f"{latency}_sum{named} 1",
              f"{latency}_count{named} 1"]  # fmt: skip
    return "\n".join([*lines, ""])


def read(pages: Sequence[str], tenants: TenantsConfig = TEAMS) -> list[TargetReading]:
    return readings([{"/metrics": page} for page in pages], seconds=10.0, tenants=tenants)


def text_of(reading: TargetReading) -> str:
    families = Families()
    add_tenants(families, reading)
    serving.add_target_health(families, reading, fresh=True, now_monotonic_seconds=0.0)
    serving.add_serving(families, reading)
    return "".join(line for family in families for line in family.lines)


def test_litellms_own_collector_by_team() -> None:
    """Version 1.110.2's collector, driven for two teams: each team's tokens are those that its own page ends with."""
    run = recording("litellm-1.110.2")
    truth = run.json("client/truth.json")
    pages = [run.pages[number].decode() for number in sorted(run.pages)]
    found = counts_of(read([*pages, *[pages[-1]] * 7])[-1])
    assert found["llama", "search"][PROMPT] == 3800
    assert found["llama", "ads"][PROMPT] == 3660
    for name, said in ((PROMPT, "prompt"), (CACHED, "cached"), (DECODE, "generated")):
        assert sum(counts[name] for counts in found.values()) == truth[said]
    # answers that ended well or by a failure of the server, as its requests_finished_total counts them
    assert sum(counts[REQUESTS] for counts in found.values()) == truth["succeeded"] + truth["failed"]


def test_each_series_has_the_labels_that_the_catalogue_declares() -> None:
    families = Families()
    add_tenants(families, read([litellm({("m", "ads"): 1.0})] * 2)[-1])
    found = {family.name: family.samples for family in families}
    assert set(found) == {PREFIX + name.removesuffix("_total") for name in (PROMPT, DECODE)}
    for name, samples in found.items():
        metric = BY_NAME[f"{name.removeprefix(PREFIX)}_total"]
        for sample in samples:
            assert set(sample.labels) == {*metric.labels, *metric.identity_labels}


def test_tenants_are_off_unless_they_are_asked_for() -> None:
    reading = read([litellm({("m", "ads"): 1.0})] * 2, TenantsConfig())[-1]
    assert reading.page.tenants is None
    assert "tenant" not in text_of(reading)


@check_rows(
    ("page", "tenants", "expected"),
    [
        ("litellm", TEAMS, {"search", "ads"}),
        ("litellm", TenantsConfig(TenantKind.KEY), {UNLABELLED}),
        ("llm-d-epp", TenantsConfig(TenantKind.ADAPTER), {"llama"}),
        ("llm-d-epp", TenantsConfig(TenantKind.HEADER, "fairness_id"), {"default"}),
        ("gen-ai", TenantsConfig(TenantKind.HEADER, "gen_ai_provider_name"), {"openai"}),
        ("envoy-ai-gateway", TenantsConfig(TenantKind.HEADER, "gen_ai_provider_name"), {"openai"}),
    ],
)
def test_each_gateways_page_names_its_tenants(page: str, tenants: TenantsConfig, expected: set[str]) -> None:
    reading = read([(TESTS / "made" / f"{page}.prom").read_text()] * 2, tenants)[-1]
    assert {tenant for _, tenant in counts_of(reading)} == expected
    assert reading.page.tenants.signals[PROMPT] is Absence.AVAILABLE


@pytest.mark.parametrize(
    ("page", "tenants", "why"),
    [
        ("smg", TEAMS, Absence.NOT_EXPORTED),
        ("gen-ai", TEAMS, Absence.NOT_EXPORTED),
        ("envoy-ai-gateway", TenantsConfig(TenantKind.HEADER, "x_org"), Absence.NOT_CONFIGURED),
    ],
)
def test_a_page_that_knows_no_tenants_says_so(page: str, tenants: TenantsConfig, why: Absence) -> None:
    reading = read([(TESTS / "made" / f"{page}.prom").read_text()] * 2, tenants)[-1]
    assert counts_of(reading) == {}
    assert set(reading.page.tenants.signals.values()) == {why}
    assert f'reason="{why.value}",signal="{PROMPT}"' in text_of(reading)


def test_an_engines_page_says_that_it_counts_no_adapters() -> None:
    run = recording("vllm-0.32")
    page = run.pages[min(run.pages)].decode()
    reading = readings([{"/metrics": page}] * 2, tenants=TenantsConfig(TenantKind.ADAPTER))[-1]
    assert set(reading.page.tenants.signals.values()) == {Absence.NOT_EXPORTED}
    assert readings([{"/metrics": page}] * 2, tenants=TEAMS)[-1].page.tenants is None


def test_counting_begins_at_0_and_a_new_tenant_is_seen_at_0() -> None:
    """So that increase() has all of it: a counter that is born at 70 has none of these 70 in any increase."""
    first = [litellm({("m", "ads"): 1000.0})]
    later = [litellm({("m", "ads"): 1000.0 + 10 * tick, ("m", "new"): 70.0}) for tick in range(1, 9)]
    found = [counts_of(reading) for reading in read(first + later)]
    assert found[0] == {("m", "ads"): {PROMPT: 0.0, DECODE: 0.0}}
    assert found[1]["m", "new"] == {PROMPT: 0.0, DECODE: 0.0}
    assert found[-1] == {("m", "ads"): {PROMPT: 80.0, DECODE: 40.0}, ("m", "new"): {PROMPT: 70.0, DECODE: 35.0}}


def test_a_gateways_restart_makes_no_counter_fall_and_loses_nothing() -> None:
    pages = [litellm({("m", "ads"): value}) for value in (1000.0, 1500.0, 40.0, *[60.0] * SETTLED)]
    totals = [counts_of(reading)["m", "ads"][PROMPT] for reading in read(pages)]
    assert totals == sorted(totals)
    assert totals[-1] == 500 + 60


def test_a_tenant_that_is_missing_for_a_moment_is_not_counted_twice() -> None:
    both, one = {("m", "ads"): 100.0, ("m", "seo"): 50.0}, {("m", "ads"): 100.0}
    pages = [litellm(both), litellm(one), litellm(both), *[litellm({**both, ("m", "seo"): 55.0})] * 8]
    assert counts_of(read(pages)[-1])["m", "seo"][PROMPT] == 5


def by_provider(tokens: dict[tuple[str, str], object]) -> str:
    """A page of LiteLLM with prompt tokens by (tenant, provider)."""
    lines = [litellm({}), "# TYPE litellm_input_tokens_metric_total counter"]
    name = "litellm_input_tokens_metric_total"
    lines += [
        f'{name}{{team_alias="{tenant}",api_provider="{provider}",requested_model="m"}} {value}'
        for (tenant, provider), value in tokens.items()
    ]
    return "\n".join([*lines, ""])


def test_a_part_of_a_tenant_that_is_missing_for_a_moment_is_no_fall_of_the_whole() -> None:
    """As collectors drop a series that nothing was sent of for five minutes, and have it again at the next request."""
    both: dict[tuple[str, str], object] = {("ads", "a"): 1e6, ("ads", "b"): 2e6}
    pages = [
        by_provider(both),
        by_provider({("ads", "a"): 1e6 + 7}),
        *[by_provider({**both, ("ads", "a"): 1e6 + 9})] * SETTLED,
    ]
    assert counts_of(read(pages)[-1])["m", "ads"][PROMPT] == 9


@check_rows("odd", ["NaN", "-3", "+Inf", "1e300"])
def test_what_is_no_count_counts_nothing_when_it_is_one_again(odd: str) -> None:
    """Neither on the first page, where what came before is not the exporter's, nor later."""
    for first in (odd, "5e6"):
        pages = [by_provider({("ads", "a"): value}) for value in (first, odd, *["5000100"] * SETTLED)]
        assert counts_of(read(pages)[-1])["m", "ads"][PROMPT] == (100 if first == "5e6" else 0)


def test_a_count_that_appears_later_than_the_others_of_its_tenant_is_seen_at_0_too() -> None:
    cached = 'litellm_input_cached_tokens_metric_total{team_alias="ads",requested_model="m"} 900\n'
    found = [
        counts_of(one)["m", "ads"]
        for one in read([*[litellm({("m", "ads"): 5.0})] * 10, *[litellm({("m", "ads"): 5.0}) + cached] * 8])
    ]
    assert found[10][CACHED] == 0
    assert found[-1][CACHED] == 900


def test_another_worker_that_answers_once_in_a_while_is_no_restart() -> None:
    """Too seldom to be suspect: what the first worker had before counts once, and the other's page not at all."""
    first = [{("m", "ads"): 1e6 + 10 * tick, ("m", "seo"): 5e5 + tick} for tick in range(60)]
    second: dict[tuple[str, str], float] = {("m", "ads"): 3e5, ("m", "seo"): 4e5, ("m", "new"): 100.0}
    found = read([litellm(second if tick % 30 == 10 else tokens) for tick, tokens in enumerate(first)])
    assert all(reading.page.up for reading in found)
    last = counts_of(found[-1])
    assert (last["m", "ads"][PROMPT], last["m", "seo"][PROMPT]) == (590, 59)


def test_a_gateway_that_crashes_again_and_again_is_counted() -> None:
    """It comes back to where it was too, but step by step."""
    lives = [*range(10, 110, 10), *range(10, 160, 10), *[150] * SETTLED]
    found = read([litellm({("m", "ads"): 100.0 * value}) for value in lives])
    assert counts_of(found[-1])["m", "ads"][PROMPT] == 100 * (90 + 150)


def test_ten_thousand_tenants_that_come_one_after_the_other() -> None:
    """Rows stay those of the first hundred, `other` never falls and has all others, and what went is not kept for ever."""
    names = TenantNames(TenantSettings(TenantKind.USER))
    counter = TenantCounter(names, 1.0)
    runtime = RUNTIMES["litellm"]
    other = 0.0
    for tick in range(41):
        there = range(max(0, 250 * tick - 400), 250 * tick + 1)
        name = "litellm_input_tokens_metric_total"
        keys = tuple(SeriesKey(name, (("end_user", f"u{number}"), ("requested_model", "m"))) for number in there)
        layout = Layout(keys, {name: "counter"}, frozenset({name}), len(keys))
        snapshot = Snapshot((), "litellm", 1e9 + 60 * tick, 60.0 * tick, sources={"prompt_tokens_total": 0})
        reading = counter.count(runtime, Samples(layout, (2.0,) * len(keys)), snapshot)
        found = {row.tenant: row.counts[PROMPT] for row in reading.rows}
        assert len(found) <= 101
        assert found.get(OTHER, 0.0) >= other
        other = found.get(OTHER, 0.0)
    assert sum(found.values()) == 2 * 10_000
    assert len(counter._gone) <= MOST_GONE + 3000


def test_an_alias_is_counted_under_the_model_that_serves_it() -> None:
    tenants = TenantsConfig(TenantKind.TEAM, aliases={"gpt-4o": "llama"})
    pages = [litellm({("gpt-4o", "ads"): 10.0 * n, ("llama", "ads"): n, ("claude", "ads"): n}) for n in range(1, 10)]
    found = counts_of(read(pages, tenants)[-1])
    assert found["llama", "ads"][PROMPT] == 8 * 11
    assert found["claude", "ads"][PROMPT] == 8
    assert ("gpt-4o", "ads") not in found


def test_the_first_hundred_tenants_have_rows_and_keep_them() -> None:
    def grown(n: int) -> dict[tuple[str, str], float]:
        return {("m", f"t{number}"): 1000.0 * number * n for number in range(150)}

    # later the smallest of all becomes the largest
    pages = [litellm({**grown(n), ("m", "t1"): 1000.0 if n < 5 else 1e9}) for n in range(1, 12)]
    found = [counts_of(reading) for reading in read(pages)]
    names = [{tenant for _, tenant in one} for one in found]
    assert len(names[0]) == 101
    # the largest of the first page
    assert names[0] == {OTHER, *(f"t{number}" for number in range(50, 150))}
    assert all(one == names[0] for one in names)
    for earlier, now in itertools.pairwise(found):
        assert all(now[key][PROMPT] >= counts[PROMPT] for key, counts in earlier.items())
    assert sum(one[PROMPT] for one in found[-1].values()) == 1000 * 10 * (sum(range(150)) - 1) + 1e9 - 1000


ADDRESSES = (
    "jane.doe@example.com", "JOE%40corp.example", "<ops@acme.org>", "mail:me@host", "jürgen@bücher.example",
    '"jane doe" @ example.com', "jane+ci@localhost", "jane@\u202eexample.com", "jane\uff20example.com", "jane%2540example.com",
    "jane&amp;#64;example.com", "jane\\u0040example.com", "jane [at] example.com", "x" * 79 + "jane@example.com",
)  # fmt: skip


@check_rows("kind", [TenantKind.TEAM, TenantKind.KEY, TenantKind.USER])
@check_rows("hashed", [False, True])
@check_rows("odd", [False, True])
def test_an_email_address_is_on_no_page(kind: TenantKind, hashed: bool, odd: bool, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("k" * 32)
    tenants = TenantsConfig(kind, hmac_key_file=str(key) if hashed else None)
    label = {TenantKind.TEAM: "team_alias", TenantKind.KEY: "api_key_alias", TenantKind.USER: "end_user"}[kind]
    tokens = {("m", address): 5.0 for address in ADDRESSES} | {("m", "ads"): 5.0}
    broken = litellm({("m", address.replace('"', "")): 5.0 for address in ADDRESSES}, label).replace(
        "end_user=", "end_user"
    )
    reading = (
        read([litellm(tokens, label), broken], tenants)[-1] if odd else read([litellm(tokens, label)] * 2, tenants)[-1]
    )
    view = View((reading,), None, {}, None, {}, "", True, 0.0, 0, ())
    pages = text_of(reading).encode() + answer_debug_targets(view, {}).body + landing_bytes(view)
    for forbidden in (b"@", b"%40", b"jane", b"acme.org", b"corp.example"):
        assert forbidden not in pages.replace(b"@media", b"").replace(b"@page", b"")
    names = {tenant for _, tenant in counts_of(reading)}
    assert names == {WITHHELD, "ads"} if not hashed else len(names) == len(tokens)


def test_hashed_names_are_pythons_hmac_and_stable(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_bytes(b"0123456789abcdef0123456789abcdef\n")
    tenants = TenantsConfig(TenantKind.TEAM, hmac_key_file=str(key))
    expected = hmac.new(b"0123456789abcdef0123456789abcdef", b"ads", hashlib.sha256).hexdigest()[:16]
    for _ in range(2):
        reading = read([litellm({("m", "ads"): 5.0})] * 2, tenants)[-1]
        assert [tenant for _, tenant in counts_of(reading)] == [expected]
        assert '"ads"' not in text_of(reading)
    assert HEX_DIGITS == 16


def test_workers_without_a_shared_folder_are_suspect_and_count_for_nobody() -> None:
    """Two workers answer in turn, the second has done a third of the first's work; then the proxy is set right."""
    mixed = [litellm({("m", "ads"): share * (1 + 0.01 * tick)}) for tick in range(20) for share in (3e6, 1e6)]
    found = read([litellm({("m", "ads"): 3e6}), *mixed])
    # once it is known, it stays known: 30 ticks of 10 s are three times as long as falls are remembered
    assert {reading.page.up for reading in found[8:]} == {False}
    last = found[-1]
    assert last.page.last.reason is FailureReason.SEVERAL_SERVERS
    assert "PROMETHEUS_MULTIPROC_DIR" in last.page.problem
    suspect = [line for line in text_of(last).splitlines() if line.startswith("llm_serving_signal_suspect")]
    assert any('cause="several_servers"' in line and 'signal="prompt_tokens_total"' in line for line in suspect)
    # nothing since the first fall is anybody's
    published = [counts_of(reading)["m", "ads"][PROMPT] for reading in found if reading.page.tenants is not None]
    assert max(published) <= 3e6 * 0.01


def test_a_reload_that_changes_nothing_of_tenants_keeps_names_and_counters() -> None:
    """And one that does begins them again, as a restart does."""
    pages = [litellm({("m", "ads"): 100.0 * tick}) for tick in range(1, 20)]
    now = [0.0]
    with Replica() as server:
        config = Config(targets=(), tenants=TEAMS)
        host = TargetHost(config, monotonic=lambda: now[0], wall=lambda: UNIX_START + now[0])
        hosted = host.add_target(Target("replica-0", server.url))

        def tick(page: str) -> Counts:
            server.show({"/metrics": page})
            now[0] += 10.0
            return counts_of(hosted.tick())

        found = [tick(page) for page in pages[:10]]
        host.config = replace(config, window_seconds=120.0, tenants=TenantsConfig(TenantKind.TEAM))
        found += [tick(page) for page in pages[10:15]]
        host.config = replace(config, tenants=TenantsConfig(TenantKind.TEAM, limit=1))
        found += [tick(page) for page in pages[15:]]
        host.close()
    assert found[14]["m", "ads"][PROMPT] == 1400
    assert found[15]["m", "ads"][PROMPT] == 0


def test_names_of_models_are_bounded_too() -> None:
    """They are what clients ask for. A model of the map of aliases is never among the others."""
    tokens = {(f"m{number}", "ads"): 1000.0 - number for number in range(150)}
    found = counts_of(read([litellm(tokens)] * 2)[-1])
    assert {model for model, _ in found} == {OTHER, *(f"m{number}" for number in range(100))}
    served = TenantsConfig(TenantKind.TEAM, aliases={"m149": "llama"})
    found = counts_of(read([litellm(tokens | {("llama", "ads"): 0.5})] * 2, served)[-1])
    assert ("llama", "ads") in found
    assert len(found) == 102


def test_the_first_requests_of_an_idle_proxy_are_its_tenants() -> None:
    """LiteLLM with several workers, which shows gauges alone until its first request."""
    idle = (TESTS / "field" / "F4-litellm-idle" / "page.prom").read_text()
    pages = [idle, idle, idle + litellm({("llama", "search"): 300.0})]
    found = readings([{"/metrics": page} for page in pages] + [{"/metrics": pages[-1]}] * SETTLED, tenants=TEAMS)
    assert counts_of(found[-1])["llama", "search"][PROMPT] == 300.0


# --- Names of tenants, one by one: what is published of them, what is withheld, and how long that takes


def test_without_its_key_nobody_is_named(tmp_path: Path) -> None:
    names = TenantNames(TenantSettings(TenantKind.TEAM, key_file=str(tmp_path / "gone")))
    assert names.publish("ads") == WITHHELD
    assert names.publish("") == UNLABELLED


def test_names_are_bounded_and_printable() -> None:
    names = TenantNames(TenantSettings(TenantKind.TEAM))
    assert len(names.publish("x" * 5000)) == 80
    assert "\n" not in names.publish("a\nb")
    assert names.publish(" \t") == UNLABELLED


@check_rows(
    "name", ["U024BE7LH", "@search", "9f1c2a34-6bb1-4c1e-9d11-00805f9b34fb", "desk-team-1-of-the-eastern-floor"]
)
def test_what_is_no_address_and_no_key_keeps_its_name(name: str) -> None:
    assert TenantNames(TenantSettings(TenantKind.USER)).publish(name) == name


def test_a_key_in_the_place_of_a_name_is_withheld() -> None:
    assert TenantNames(TenantSettings(TenantKind.KEY)).publish("ci sk-Zs9fQ2k3Lw8pXy7v0aBcDe") == WITHHELD


def test_a_name_takes_no_longer_than_it_is() -> None:
    """Whoever sends requests chooses names of users, and each page asks for each of them: a search that begins anew at each character took
    14 s for this one."""
    began = time.process_time()
    TenantNames(TenantSettings(TenantKind.USER)).publish(
        "x" * 20_000 + "&amp;" * 1000 + "%25" * 1000 + "[ " * 1000 + "\\" * 20_000
    )
    assert time.process_time() - began < 1.0


def test_words_of_ours_take_no_row_of_a_tenant() -> None:
    names = TenantNames(TenantSettings(TenantKind.TEAM, limit=1))
    assert [names.publish(raw) for raw in ("other", "unlabelled", "withheld", "ads")] == [
        "other",
        "unlabelled",
        "withheld",
        "ads",
    ]
