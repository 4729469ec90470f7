"""The cases of the golden expositions: which pages of which run, and what else the server answers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from llm_serving_simulator.replay import Recording
from tests.support.builders.recordings import recording
from tests.support.paths import TESTS
from tests.support.servers.replica import Routes

# pages made from the facts, not recorded
MADE = TESTS / "made"


@dataclass(frozen=True)
class Case:
    """Ticks ten seconds apart over `pages` of the recorded `run`, or over `made`: tests/made/NAME.prom twice, then NAME-later.prom.

    The page stands at `path`; `beside`: what the server answers elsewhere at a page. `target`: settings of the Target. A first page stands
    twice, because facts are looked up after a page and busy time is counted between two that have them. `unreadable`: ticks at the end
    at which the server has no page.
    """

    run: str = ""
    pages: tuple[int, ...] = ()
    made: str = ""
    path: str = "/metrics"
    beside: Callable[[Recording, int], Routes] = lambda run, number: {}
    target: Mapping[str, Any] = field(default_factory=dict)
    unreadable: int = 0

    def steps(self) -> list[Routes]:
        if self.made:
            first, later = (MADE / f"{self.made}{which}.prom" for which in ("", "-later"))
            return [{self.path: page.read_bytes()} for page in (first, first, later)]
        run = recording(self.run)
        found: list[Routes] = [{**self.beside(run, number), self.path: run.pages[number]} for number in self.pages]
        return [*found, *({} for _ in range(self.unreadable))]


def vllm_says(run: Recording, number: int) -> Routes:
    """The endpoints that were recorded beside vLLM's page."""
    paths = {
        "/version": "endpoints/version.body",
        "/v1/models": "endpoints/v1_models.body",
        "/server_info?config_format=json": "endpoints/server_info_config_format_json.body",
    }
    return {path: run.members[name] for path, name in paths.items() if name in run.members}


def llamacpp_says(run: Recording, number: int) -> Routes:
    """What was recorded beside llama.cpp's page: /slots at every tenth."""
    paths = {
        "/props": "json/props-0000.json",
        "/v1/models": "json/models-0000.json",
        "/slots": f"json/slots-{number:04}.json",
    }
    return {path: run.members[name] for path, name in paths.items() if name in run.members}


def _vllm(run: str, *pages: int) -> Case:
    return Case(run, (pages[0], *pages), beside=vllm_says)


def infinity_says(run: Recording, number: int) -> Routes:
    """Infinity's model list as it was at the page: its queue."""
    return {"/models": run.members[f"json/models-{number:04}.json"]}


# the page that budgets are measured on, with everything known
MAIN = "vllm-0.32-mfu-saturated"
CASES: dict[str, Case] = {
    "vllm-0.32-idle": _vllm("vllm-0.32", 0, 10),
    "vllm-0.32-light": _vllm("vllm-0.32", 20, 30),
    "vllm-0.32-saturated": _vllm("vllm-0.32", 50, 60),
    "vllm-0.32-kv-pressure": _vllm("vllm-0.32", 90, 100),
    "vllm-0.32-prefill-heavy": _vllm("vllm-0.32", 125, 135),
    "vllm-0.32-mfu-rejections": _vllm("vllm-0.32-mfu", 22, 32),
    MAIN: _vllm("vllm-0.32-mfu", 50, 60),
    # longer than its last good values stay
    "vllm-0.32-mfu-unreadable": Case("vllm-0.32-mfu", (50, 50, 60), beside=vllm_says, unreadable=2),
    "vllm-0.32-spec": _vllm("vllm-0.32-spec", 24, 44),
    "vllm-0.32-dp2": _vllm("vllm-0.32-dp2", 6, 16),
    "vllm-0.32-embed": _vllm("vllm-0.32-embed", 10, 40),
    "vllm-0.32-restarted": _vllm("vllm-0.32-restart", 20, 80),
    "vllm-0.17.1": _vllm("vllm-logger-0.17.1-v1", 54, 105),
    "vllm-0.10.2": _vllm("vllm-logger-0.10.2-v1", 54, 105),
    "vllm-0.8.5-v1": _vllm("vllm-logger-0.8.5-v1", 54, 105),
    "vllm-0.8.5-v0": _vllm("vllm-logger-0.8.5-v0", 54, 105),
    "vllm-0.6.6": Case(made="vllm-0.6.6"),
    "ray-vllm": Case(made="ray_vllm", target={"gpu_count": 3}),
    "trtllm-050f80de-idle": Case("trtllm-050f80de", (0, 0, 6), path="/prometheus/metrics"),
    "trtllm-050f80de-saturated": Case("trtllm-050f80de", (34, 34, 46), path="/prometheus/metrics"),
    "trtllm-050f80de-drained": Case("trtllm-050f80de", (138, 138, 148, 160, 160, 160, 160), path="/prometheus/metrics"),
    "trtllm-1.1": Case(made="trtllm-1.1", path="/prometheus/metrics"),
    "triton-trtllm": Case(made="triton_trtllm"),
    "triton-vllm": Case(made="triton_vllm"),
    "triton": Case(made="triton"),
    "nim": Case(made="nim", path="/v1/metrics"),
    "tgi": Case(made="tgi", target={"model_name": "made"}),
    "tei": Case(made="tei", target={"model_name": "made"}),
    "lightllm": Case(made="lightllm", target={"model_name": "made"}),
    "mistralrs": Case(made="mistralrs", target={"model_name": "made"}),
    "xinference": Case(made="xinference"),
    "sglang-0.5.23-idle": Case("sglang-0.5.23", (0, 0, 6)),
    "sglang-0.5.23-saturated": Case("sglang-0.5.23", (36, 36, 46)),
    "sglang-0.5.23-kv-pressure": Case("sglang-0.5.23", (68, 68, 78)),
    "dynamo-1.6.1-frontend-overload": Case("dynamo-1.6.1-frontend", (52, 52, 56)),
    "dynamo-1.6.1-worker-overload": Case("dynamo-1.6.1-worker", (52, 52, 56)),
    "dynamo-1.6.1-worker-restarted": Case("dynamo-1.6.1-worker", (122, 122, 124, 132, 134)),
    "llamacpp-b11434-idle": Case("llamacpp-b11434", (0, 0, 6), beside=llamacpp_says),
    "llamacpp-b11434-overload": Case("llamacpp-b11434", (50, 50, 60), beside=llamacpp_says),
    "llamacpp-b11434-restarted": Case("llamacpp-b11434-restart", (30, 30, 67, 100)),
    "lmdeploy-0.18.0-idle": Case("lmdeploy-0.18.0", (0, 0, 6)),
    "lmdeploy-0.18.0-saturated": Case("lmdeploy-0.18.0", (34, 34, 46)),
    "lmdeploy-0.18.0-kv-pressure": Case("lmdeploy-0.18.0", (70, 70, 80)),
    "infinity-0.0.78-idle": Case("infinity-0.0.78", (0, 0, 4), beside=infinity_says),
    "infinity-0.0.78-overload": Case("infinity-0.0.78", (20, 20, 36), beside=infinity_says),
    "infinity-0.0.78-given-up": Case("infinity-0.0.78", (76, 76, 84, 100), beside=infinity_says),
}
