"""The picture of the roofline and the panel of tenants, asked of promtool."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from llm_serving_alerts.settings_file import default_settings
from llm_serving_dashboards.boards import build_dashboards
from tests.pack.judging import ask, expect
from tests.pack.rulesets import committed_records
from tests.support.builders.askedpanels import ask_promtool, default_boards, default_documents, write_series
from tests.support.builders.panelqueries import answered, filled

UID = "llm-serving-roofline"
# H100 SXM, dense bf16 and HBM3 as NVIDIA's data sheet has them, 989.4e12 FLOP/s over 3.35e12 B/s, so rounded that floats have its quarters
RIDGE = 295.25
_POINTS = re.compile(r'vector\(([\d.]+)\), "x", "([\d.]+)"')


@cache
def list_asked() -> dict[str, str]:
    """The query of each mark of the picture, by the mark's title."""
    (panel,) = (one for one in default_boards()[UID].board.panels if one.title == "Roofline")
    hidden = default_boards()[UID].queries.hidden
    return {mark.title: answered(query.expr, hidden) for mark, query in zip(panel.marks, panel.queries, strict=True)}


def engines(*places: tuple[float, float]) -> Iterator[dict[str, str]]:
    """An engine for each pair of arithmetic intensity and MFU."""
    for number, (intensity, reached) in enumerate(places):
        of = {"target": f"chat-{number}", "model_name": "chat", "role": "unified", "engine": "0"}
        yield write_series("llm_serving_arithmetic_intensity_flops_per_byte", f"{intensity}x20", **of)
        yield write_series("llm_serving_ridge_flops_per_byte", f"{RIDGE}x20", **of)
        yield write_series("llm_serving_compute_ceiling_ratio", f"{reached}x20", **of)


def points(name: str) -> list[tuple[float, float]]:
    """Horizontal and vertical values of a line, which is nothing but constants."""
    return sorted((float(x), float(y)) for y, x in _POINTS.findall(list_asked()[name]))


def test_the_roof_is_the_slope_of_the_bandwidth_up_to_the_ridge_and_flat_behind_it() -> None:
    roof = points("roof")
    assert [x for x, _ in roof] == [0.001, 1.0, 10.0]
    assert all(y == pytest.approx(min(x, 1.0)) for x, y in roof)
    assert [(round(x, 5), y) for x, y in points("ridge")] == [(1.0, 1.0), (1.0, 0.001)]


@pytest.mark.process
def test_a_model_is_one_dot_and_its_engines_are_small_ones(tmp_path: Path) -> None:
    # a quarter and three quarters of the ridge; a fifth and two fifths of the peak
    series = engines((RIDGE / 4, 0.2), (RIDGE * 3 / 4, 0.4))
    mean = {'{model_name="chat", role="unified", x="0.5"}': 0.3}
    each = {
        f'{{target="chat-{number}", model_name="chat", role="unified", engine="0", x="{x}"}}': y
        for number, (x, y) in enumerate(((0.25, 0.2), (0.75, 0.4)))
    }
    wanted = {"now": mean, "last day, by the hour": mean, "engines now": each}
    ask_promtool(
        tmp_path,
        series,
        {f"round({list_asked()[name]}, 0.0001)": found for name, found in wanted.items()},
        settings=default_settings(),
    )


@pytest.mark.process
def test_an_idle_engine_has_no_dot(tmp_path: Path) -> None:
    ask_promtool(
        tmp_path,
        engines((100, 0.0)),
        {list_asked()["now"]: {}, list_asked()["engines now"]: {}},
        settings=default_settings(),
    )


def test_each_query_is_a_series_of_its_own_on_logarithmic_axes() -> None:
    (panel,) = (one for one in default_documents()[UID]["panels"] if one["title"] == "Roofline")
    names = {
        override["matcher"]["options"]: one["value"]
        for override in panel["fieldConfig"]["overrides"]
        for one in override["properties"]
        if one["id"] == "displayName"
    }
    titles = ("roof", "ridge", "engines now", "last day, by the hour", "now")
    assert names == {f"Value #{letter}": title for letter, title in zip("ABCDE", titles, strict=True)}
    # a frame with a horizontal value is a series, whichever queries have an answer
    assert panel["options"]["mapping"] == "auto"
    scales = [
        one["value"]
        for override in panel["fieldConfig"]["overrides"]
        for one in override["properties"]
        if one["id"] == "custom.scaleDistribution"
    ]
    assert scales == [{"type": "log", "log": 10}] * 6
    assert panel["timeFrom"] == "24h"
    # by the hour, whatever the width
    assert [target.get("interval") for target in panel["targets"]] == [None, None, None, "1h", None]


# --- the panel of tenants, asked of promtool over what the rules record of a gateway ---


@pytest.mark.process
def test_tenants_shares_add_up_to_all_that_gateways_count(tmp_path: Path) -> None:
    settings = default_settings()
    (asked,) = (
        panel.queries[0].expr
        for made in build_dashboards(settings)
        for panel in made.board.panels
        if "by tenant" in panel.title
    )
    # an engine's role, as somebody chooses it who looks at the engines behind the gateway
    query = filled(asked.replace("$role", "unified"))
    # a pair of exporters counts once: 600 + 200 of search and 150 + 50 of ads a minute
    history = {
        f'llm_serving_tenant_{name}_total{{target="gw",model_name="m",role="frontend",tenant="{tenant}",kind="team",instance="{instance}"}}':
            f"0+{growth}x20"
        for instance in ("a", "b")
        for name, tenant, growth in (
            ("prompt_tokens", "search", 600), ("decode_tokens", "search", 200), ("prompt_tokens", "ads", 150), ("decode_tokens", "ads", 50),
        )
    }  # fmt: skip
    shares = {'{tenant="search"}': 0.8, '{tenant="ads"}': 0.2}
    assert not ask(tmp_path, history, [expect(f"round({query}, 0.001)", "15m", shares)], committed_records())
