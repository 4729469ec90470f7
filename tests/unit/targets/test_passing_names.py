"""Models and reasons that come and go for long: bounds count those that are there, and none that left keeps out a new one."""

import pytest

from llm_serving_exporter.cost.meter import MOST_NAMES
from llm_serving_exporter.daemon.store import Store
from llm_serving_exporter.engines import plan
from llm_serving_exporter.engines.plan import MAX_ENGINES
from llm_serving_exporter.engines.rows import MAX_LABEL_VALUES
from llm_serving_exporter.expose.collector import Setup, ViewCollector
from llm_serving_exporter.expose.encode import encode
from llm_serving_exporter.model.target import Target
from llm_serving_exporter.settings.config import Config
from llm_serving_exporter.targets.host import TargetHost
from tests.support.quick import keep_quick
from tests.support.servers.replica import Replica


def page(number: int) -> str:
    return (
        "\n".join(
            f"""vllm:num_requests_running{{engine="0",model_name="{model}"}} 1
vllm:generation_tokens_total{{engine="0",model_name="{model}"}} {100 * (number + 1)}
vllm:request_success_total{{engine="0",finished_reason="stays",model_name="{model}"}} {number}
vllm:request_success_total{{engine="0",finished_reason="reason-{number}",model_name="{model}"}} 1"""
            for model in ("stays", f"passing-{number}")
        )
        + "\n"
    )


@pytest.mark.parametrize("engines", keep_quick([100, MAX_ENGINES], lambda engines: engines == 100))
def test_a_new_name_is_shown_however_many_there_were_before_it(engines: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "MAX_ENGINES", engines)
    # more names than any bound; each tick has one of its own and one that stays
    ticks = engines + 200
    now = [1000.0]
    host = TargetHost(Config(targets=()), monotonic=lambda: now[0], wall=lambda: now[0])
    sizes = []
    with Replica() as server:
        target = Target("t", server.url, gpu_count=1)
        hosted = host.add_target(target)
        store = Store()
        store.add_target(target)
        collector = ViewCollector(store.view, lambda: Setup(15.0, 15.0, "n"), lambda: now[0])
        for number in range(ticks):
            server.show({"/metrics": page(number)})
            now[0] += 5.0
            store.put_target(hosted.tick())
            if number % 100 == 99 or number == ticks - 1:
                text = encode(collector, "")[0].decode()
                sizes.append(len(text.splitlines()))
                assert f'finished_total{{container="",engine="0",model_name="passing-{number}"' in text
                assert f'reason="reason-{number}"' in text
                stays = (
                    'container="",engine="0",model_name="stays",namespace="",node="",pod="",role="unified",target="t"'
                )
                assert f"decode_tokens_total{{{stays}}} {100.0 * (number + 1)}" in text
                assert f'gpu_seconds_total{{container="",engine="0",model_name="passing-{number}"' in text
        host.close()
    # series of names that left are gone, but for what they cost, of which the last are kept
    assert max(sizes) - min(sizes) < 10 * MOST_NAMES
    assert ticks > MAX_LABEL_VALUES
