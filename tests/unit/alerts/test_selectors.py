"""Every selector of rules, panels and runbooks chooses a series that the exporter really publishes.

A label or a value that no page has any more leaves a query empty, and nothing else says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest

from llm_serving_alerts.alerting import ALERTS
from llm_serving_alerts.render import every_rule, rule_groups
from llm_serving_alerts.rules import ALERT_PREFIX
from llm_serving_alerts.runbook_texts import read_queries
from llm_serving_exporter.catalogue.health import ASKED_WHETHER_LIVE
from llm_serving_exporter.catalogue.serving import HISTOGRAMS
from llm_serving_exporter.catalogue.spec import PREFIX
from tests.simweek.build import queries, week_settings
from tests.support.builders.panelqueries import filled
from tests.support.rows import check_rows
from tests.support.selectors import Selector, find_unmatched, read_selectors

_NO_FAULT = "every golden target takes connections; tests/unit/expose/test_faults.py reads it"
_NO_PART = "every golden target is a replica by itself; tests/unit/targets/test_replicas.py reads parts"
_NO_INSTANCE = "the goldens' GPU is a whole card; tests/unit/gpus reads instances"
_NOT_RENAMED = "what a scrape has made of the labels, which the exporter's own page cannot show"
_GPM_IS_SUSPECT = "of the sources only GPM says more than the peak on a golden page: vllm-0.32-spec"
_NO_TENANTS = "no golden page is a gateway's that counts by tenant; tests/unit/targets/test_tenants.py reads some"
# what no golden page has, and why not
_READABLE = "no golden page is of a server whose page alone fails"
NOT_ON_A_PAGE = {
    'llm_serving_target_last_failure_timestamp_seconds{reason="page_fails"}': _READABLE,
    'llm_serving_target_last_failure_timestamp_seconds{target="TARGET",reason="page_fails"}': _READABLE,
    "llm_serving_target_fault_info": _NO_FAULT,
    'llm_serving_target_fault_info{fault=~"silent|node_lost"}': _NO_FAULT,
    'llm_serving_target_fault_info{node="NODE"}': _NO_FAULT,
    'llm_serving_.+{exported_fault!=""}': _NO_FAULT,
    'llm_serving_target_replica_ranks{of="replica",replica_name!=""}': _NO_PART,
    'llm_serving_target_replica_ranks{of="target",replica_name!=""}': _NO_PART,
    'llm_serving_.+{exported_replica_name!=""}': _NO_PART,
    'llm_serving_.+{exported_of!=""}': _NO_PART,
    'llm_serving_.+{exported_tenant!=""}': _NO_TENANTS,
    "llm_serving_tenant_prompt_tokens_total": _NO_TENANTS,
    "llm_serving_tenant_decode_tokens_total": _NO_TENANTS,
    'llm_serving_.+{exported_mig_profile!=""}': _NO_INSTANCE,
    'llm_serving_.+{exported_parent!=""}': _NO_INSTANCE,
    'llm_serving_written_labels_info{namespace!="as written",exported_namespace=""}': _NOT_RENAMED,
    'llm_serving_written_labels_info{node!="as written",exported_node=""}': _NOT_RENAMED,
    'llm_serving_target_info{cluster!=""}': "a label of the scrape or of the Prometheus",
    'llm_serving_signal_suspect{signal="bandwidth_ceiling_ratio_dcgm"}': _GPM_IS_SUSPECT,
    'llm_serving_signal_suspect{signal="bandwidth_ceiling_ratio_model"}': _GPM_IS_SUSPECT,
}
# nobody reads its buckets by a query: LLMServingSLOBurn.md sends its reader there
_READ_BY_PEOPLE = {"request_generation_tokens"}


def _read_rules() -> Iterator[str]:
    yield from (rule.expr for rule in every_rule(rule_groups(week_settings())))


def _read_panels() -> Iterator[str]:
    yield from map(filled, queries(week_settings()))


def _read_runbooks() -> Iterator[str]:
    for alert in ALERTS:
        yield from read_queries(f"{ALERT_PREFIX}{alert.name}")


WHERE = {"rules": _read_rules, "panels": _read_panels, "runbooks": _read_runbooks}


@cache
def find_asked(where: str) -> frozenset[Selector]:
    """What is asked there of the exporter's series."""
    return frozenset(one for text in WHERE[where]() for one in read_selectors(text) if one.name.startswith(PREFIX))


def find_all_asked() -> frozenset[Selector]:
    return frozenset().union(*map(find_asked, WHERE))


@pytest.mark.parametrize("where", WHERE)
def test_every_selector_chooses_a_series_of_a_golden_page_or_is_a_listed_exception(where: str) -> None:
    asked = find_asked(where)
    assert len(asked) > 40
    assert {str(one) for one in find_unmatched(asked)} <= NOT_ON_A_PAGE.keys()


def test_every_exception_is_asked_for_and_on_no_page() -> None:
    assert {str(one) for one in find_unmatched(find_all_asked())} == NOT_ON_A_PAGE.keys()


@check_rows(
    ("expression", "found"),
    [
        # as rules once asked for it, when the reason stood on the counter
        ('sum by (reason) (increase(llm_serving_scrape_failures_total{reason="timeout"}[5m])) > 0', False),
        ('llm_serving_scrape_failures_total{stage=~"scrape|parse",target="TARGET"}', True),
        ('llm_serving_scrape_failures_total{stage=~"scrap|parser"}', False),
        ('llm_serving_scrape_failures_total{stage!~"scrape|parse|normalise"}', False),
        ('llm_serving_scrape_failures_total{stage!=""} offset 5m', True),
        # what is available has no line
        ('llm_serving_signal_available{reason=""} == 1', False),
        ("llm_serving_signal_availability == 0", False),
        ('{__name__=~"llm_serving_target_up|llm_serving_signals",instance="INSTANCE"}', True),
        ('{__name__=~"llm_serving_target_up|llm_serving_signal"}', False),
        ('llm_serving_target_info{exported_runtime!=""}', True),
        ('llm_serving_target_info{exported_color!=""}', False),
    ],
)  # fmt: skip
def test_a_selector_that_chooses_nothing_is_found(expression: str, found: bool) -> None:
    assert bool(find_unmatched(read_selectors(expression))) is not found


def test_live_is_said_of_the_signals_of_which_rules_ask_it() -> None:
    asked = {
        tuple(f"{m.label}{m.operator}{m.value}" for m in sorted(one.matchers, key=lambda m: m.label))
        for one in find_all_asked()
        if one.name == f"{PREFIX}signal_quality" and "live" in str(one) and "!=" not in str(one)
    }
    assert asked == {("quality=live", f"signal={signal}") for signal in ASKED_WHETHER_LIVE}


def test_finite_buckets_are_published_of_the_histograms_whose_buckets_are_read() -> None:
    read = {
        one.name.removeprefix(PREFIX).removesuffix("_bucket")
        for one in find_all_asked()
        if one.name.endswith("_bucket") and 'le="+Inf"' not in str(one)
    }
    assert {metric.name for metric in HISTOGRAMS if metric.finite_buckets} == read | _READ_BY_PEOPLE
