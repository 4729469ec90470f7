"""What the real exporter says a server costs: by its own page, while prices change, the server dies and files break."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from llm_serving_simulator.replay import demo_model_config
from tests.support.builders.recordings import recording
from tests.support.servers.exporter_process import Exporter, Scraped
from tests.support.servers.stepped import SteppedServer

pytestmark = pytest.mark.process

INTERVAL = 0.2


def state_prices(path: Path, usd: float | None) -> None:
    """None: a file that cannot be used."""
    price = {"target": "chat", "rate": "reserved", "usd_per_gpu_hour": usd} if usd else {"target": "chat"}
    fresh = path.with_suffix(".new")
    fresh.write_text(yaml.safe_dump({"prices": [price], "budget_usd_per_month": 1000}))
    fresh.replace(path)


def configured(tmp_path: Path, *targets: dict[str, object]) -> tuple[str, ...]:
    path = tmp_path / "exporter.yml"
    settings = {
        "targets": list(targets),
        "scrape": {"interval": "200ms"},
        "target_defaults": {"interval": "200ms", "model": {"config": str(demo_model_config())}},
        "cost": {"price_file": "prices.yml"},
    }
    path.write_text(yaml.safe_dump(settings))
    return "--config.file", str(path), "--window", "2s"


def spent(page: Scraped) -> float:
    return page.total("cost_usd_total", target="chat")


def counted(page: Scraped) -> float:
    return page.total("gpu_seconds_total", target="chat")


def price(page: Scraped) -> float | None:
    found = page.series("gpu_price_usd_per_hour", target="chat")
    return next(iter(found.values())) if found else None


def gpu_seconds(page: Scraped, state: str) -> float:
    return page.total("gpu_seconds_total", target="chat", state=state)


@pytest.mark.e2e
def test_the_cost_of_a_server_that_works_dies_and_is_priced_anew(tmp_path: Path) -> None:
    # 3600 USD an hour: a USD a GPU second
    prices = tmp_path / "prices.yml"
    state_prices(prices, 3600.0)
    run = recording("vllm-0.32")
    server = SteppedServer(run)
    server.__enter__()
    try:
        chat = {"name": "chat", "url": server.url, "gpu_count": 2, "gpu_model": "H100 SXM", "node": "a"}
        with Exporter(*configured(tmp_path, chat)) as exporter:
            exporter.until(lambda page: bool(page.series("cost_usd_total")), "a cost")
            for number in range(40, 60):  # pages of a saturated server
                server.show(number)
                exporter.after_ticks(1)
            # what waits for its tokens is the only part that is not booked yet
            page = exporter.until(
                lambda page: page.total("cost_usd_total", phase="decode") > 0 and spent(page) > counted(page) - 5.0,
                "busy time that is split",
            )
            assert gpu_seconds(page, "busy") > 0
            assert spent(page) <= counted(page) + 1e-6
            assert page.value("gpu_price_usd_per_hour", target="chat", rate="reserved") == 3600.0
            assert page.value("cost_budget_usd_per_month") == 1000.0
            per_million = page.value("cost_usd_per_million_tokens", phase="decode", basis="busy")
            window = page.value("phase_tokens_per_second", phase="decode")
            # two GPUs at a USD a second each, all of it decode at the most
            assert 0 < per_million <= 1e6 * 2.0 / window * 1.5

            server.__exit__(None, None, None)
            page = exporter.until(
                # on a busy machine some scrapes time out before: that is time down too
                lambda page: (
                    gpu_seconds(page, "down") > 1.0
                    and spent(page) == pytest.approx(counted(page), rel=1e-6)
                    and page.value("signal_available", signal="cost_usd_per_million_tokens", reason="target_down")
                    == 0.0
                ),
                "time down, and every second booked",
            )
            assert page.total("cost_usd_total", phase="down") == pytest.approx(gpu_seconds(page, "down"), rel=1e-6)
            assert not page.series("cost_usd_per_million_tokens")
            assert not page.series("signal_available", signal="cost_usd_total")

            state_prices(prices, None)
            page = exporter.until(
                lambda page: page.value("exporter_config_reload_success") == 0.0, "a refused price file"
            )
            assert price(page) == 3600.0
            # it is read by a thread of its own
            exporter.until(
                lambda _: any("prices[0]: no amount is given" in line for line in exporter.log), "its log line"
            )

            state_prices(prices, 36.0)
            page = exporter.until(lambda page: price(page) == 36.0, "the new price")
            exporter.until(lambda page: page.value("exporter_config_reload_success") == 1.0, "a price file in use")
            before = exporter.scrape()
            page = exporter.until(lambda page: counted(page) > counted(before) + 2.0, "two more GPU seconds")
            # a cent each
            assert spent(page) - spent(before) == pytest.approx((counted(page) - counted(before)) * 0.01, rel=1e-6)
    finally:
        server.close()


def test_a_typo_in_the_price_file_costs_the_cost_and_nothing_else(tmp_path: Path) -> None:
    prices = tmp_path / "prices.yml"
    state_prices(prices, None)
    with SteppedServer(recording("vllm-0.32")) as server:
        chat = {"name": "chat", "url": server.url, "gpu_count": 2, "gpu_model": "H100 SXM"}
        with Exporter(*configured(tmp_path, chat)) as exporter:
            page = exporter.until(lambda page: bool(page.series("gpu_seconds_total", target="chat")), "GPU time")
            assert page.value("target_up", target="chat") == 1.0
            assert page.value("exporter_config_reload_success") == 0.0
            assert page.value("signal_available", signal="cost_usd_total", reason="prices_unusable") == 0.0
            assert not page.series("cost_usd_total")
            assert any("nothing has a cost until it can" in line and "no amount" in line for line in exporter.log)
            # written in place, bit by bit: no price of before its end is ever in force
            with prices.open("w") as file:
                for part in ("prices: [{target: chat, usd_per_gpu_hour: 360", "0}]", "\n"):
                    file.write(part)
                    file.flush()
                    page = exporter.after_ticks(2)
                    assert price(page) in (None, 3600.0)
            page = exporter.until(lambda page: price(page) == 3600.0, "the price")
            exporter.until(lambda page: page.value("exporter_config_reload_success") == 1.0, "a price file in use")


def test_two_targets_on_the_same_gpus_cost_their_shares(tmp_path: Path) -> None:
    state_prices(tmp_path / "prices.yml", 3600.0)
    uuid = "GPU-00000000-0000-0000-0000-000000000001"
    both = [
        {"name": name, "url": f"http://127.0.0.1:{port}", "gpus": [uuid], "gpu_model": "H100 SXM", "gpu_share": share}
        for name, port, share in (("chat", 9, 0.25), ("code", 10, 0.75))
    ]
    with Exporter(*configured(tmp_path, *both)) as exporter:
        # each target has ticks of its own: what one is ahead by matters less and less
        exporter.until(
            lambda page: (
                seconds_of(page, "code") == pytest.approx(3 * seconds_of(page, "chat"), rel=0.2, abs=0)
                and seconds_of(page, "chat") > 0.2
            ),
            "GPU seconds by the shares",
        )


def seconds_of(page: Scraped, target: str) -> float:
    return sum(page.series("gpu_seconds_total", target=target).values())


def test_gpus_of_a_pool_are_metered_at_the_uncommitted_price_where_the_price_file_says_they_stand(
    tmp_path: Path,
) -> None:
    (tmp_path / "prices.yml").write_text(
        "prices: [{gpu_model: H100 SXM, rate: pool, usd_per_gpu_hour: 3600}]\n"
        "pools: [{name: reserved, kind: quantity, instance_type: p5.48xlarge, gpus: 8, usd_per_gpu_hour: 1800}]\n"
        "nodes: [{node: [a, b], region: us-east-1, zone: us-east-1a, instance_type: p5.48xlarge}]\n"
    )
    with SteppedServer(recording("vllm-0.32")) as server:
        chat = {
            "name": "chat",
            "url": server.url,
            "gpu_count": 2,
            "gpu_model": "H100 SXM",
            "nodes": ["a", "c"],
            "region": "eu",
        }
        with Exporter(*configured(tmp_path, chat)) as exporter:
            page = exporter.until(lambda page: spent(page) > 2, "a cost")
            # the commitment changes nothing here: 3600 USD an hour are a USD a GPU second
            assert page.value("gpu_price_usd_per_hour", target="chat", rate="pool") == 3600.0
            assert page.value("rate_info", rate="pool", kind="pool", includes_power="true") == 1
            there = {"region": "us-east-1", "zone": "us-east-1a", "instance_type": "p5.48xlarge", "provider_id": ""}
            assert page.value("target_node_info", target="chat", node="a", **there) == 1
            # the target's own region is that of its first node
            nowhere = {"region": "", "zone": "", "instance_type": "", "provider_id": ""}
            assert page.value("target_node_info", target="chat", node="c", **nowhere) == 1
            assert len(page.series("target_node_info", target="chat")) == 2
            assert "(rate pool, before commitments)" in exporter.get("/").text
