"""A daemon on a stub clock, asked over HTTP: its pages for Prometheus and for people, what it sends over OTLP, and its log."""

from __future__ import annotations

import http.client
import io
import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.same.commands import hide_port
from tests.same.internals import DrivenService
from tests.same.outputs import Outputs
from tests.support.builders.golden_cases import llamacpp_says, vllm_says
from tests.support.builders.pods import STACKS, fixture_pods, running_status, stored
from tests.support.builders.recordings import recording
from tests.support.servers.kube_script import Call, KubeScript, page, write_kubeconfig
from tests.support.servers.replica import Replica

TEXT, OPENMETRICS = "text/plain", "application/openmetrics-text"
TICKS, SECONDS = 10, 5.0
# after which the series page is kept: the first, the first with a window, the last
SHOWN = (1, 3, TICKS)
_CONFIG = """\
scrape: {{interval: 5s}}
target_labels: [team]
slo: {{ttft: 500ms, itl: 50ms, e2e: 30s}}
web: {{runbooks: true}}
cost: {{price_file: prices.yml}}
targets:
  - {{url: "{vllm}", name: chat, labels: {{team: search}}, gpu_model: H100 SXM, gpu_count: 2, model: {{name: Qwen3-30B-A3B}}}}
  - {{url: "{llamacpp}", name: edge, role: unified}}
  - {{url: "http://127.0.0.1:9", name: gone}}
"""
_PRICES = """\
prices: [{gpu_model: H100 SXM, rate: reserved, usd_per_gpu_hour: 2.5}]
rates: {reserved: {kind: reserved, committed_gpus: 16}}
"""
_PAGES = {
    "landing": "/",
    "target": "/?target=chat",
    "target-gone": "/?target=gone",
    "debug": "/debug/targets",
    "healthy": "/-/healthy",
    "ready": "/-/ready",
    "runbooks": "/runbooks/",
    "runbook": "/runbooks/LLMServingKVSaturated",
    "nowhere": "/nowhere",
}


def write_daemon(outputs: Outputs) -> None:
    """Ten ticks over a recorded vLLM and a recorded llama.cpp, beside a server that is gone; a reload, a bad reload, and the end."""
    vllm, llamacpp = recording("vllm-0.32-mfu"), recording("llamacpp-b11434")
    with (
        tempfile.TemporaryDirectory() as made,
        Replica() as first,
        Replica() as second,
        _receiver() as receiver,
    ):
        file, log = Path(made) / "exporter.yml", io.StringIO()
        text = _CONFIG.format(vllm=first.url, llamacpp=second.url)
        (Path(made) / "prices.yml").write_text(_PRICES, encoding="utf-8")
        file.write_text(text.replace("prices.yml", f"{made}/prices.yml"), encoding="utf-8")
        otlp = ["--otlp.url", receiver.url, "--otlp.interval", "1h"] if receiver is not None else []
        words = ["--config.file", str(file), "--web.enable-lifecycle", "true", *otlp]
        hidden = {made: "FOLDER", **hide_port(first.url), **hide_port(second.url, "PORT2")}
        with closing(DrivenService(words, log=log)) as service:
            hidden |= hide_port(service.url, "PORT3") | (hide_port(receiver.url, "PORT4") if receiver else {})
            with outputs.hiding(hidden):
                outputs.write("pages/tick-0.txt", _ask(service.url, "/metrics", TEXT))
                for tick in range(1, TICKS + 1):
                    first.show({**vllm_says(vllm, 50), "/metrics": vllm.pages[49 + tick]})
                    second.show({**llamacpp_says(llamacpp, 50), "/metrics": llamacpp.pages[49 + tick]})
                    service.advance(SECONDS)
                    if tick in SHOWN:
                        outputs.write(f"pages/tick-{tick}.txt", _ask(service.url, "/metrics", TEXT))
                outputs.write(f"pages/tick-{TICKS}.openmetrics", _ask(service.url, "/metrics", OPENMETRICS))
                for name, path in _PAGES.items():
                    outputs.write(f"web/{name}.txt", _ask(service.url, path, "text/html"))
                if receiver is not None:
                    service.send_otlp()
                    outputs.write("otlp/request.txt", _read_otlp(receiver.bodies))
                outputs.write("web/reload.txt", _ask(service.url, "/-/reload", TEXT, method="POST"))
                file.write_text(f"{text}nonsense: 1\n", encoding="utf-8")
                outputs.write("web/reload-bad.txt", _ask(service.url, "/-/reload", TEXT, method="POST"))
                first.refuse()
                service.advance(4 * SECONDS)
                outputs.write("pages/tick-late.txt", _ask(service.url, "/metrics", TEXT))
        with outputs.hiding(hidden):
            outputs.write("log.logfmt", log.getvalue())


def write_kubernetes(outputs: Outputs) -> None:
    """The targets, with their labels, that become of the pods of every stack; none of them is asked."""
    pods = [
        stored(pod, f"uid-{stack}-{number}", running_status(pod, f"10.{part}.0.{number}"))
        for part, stack in enumerate(STACKS)
        for number, pod in enumerate(fixture_pods(stack), 1)
    ]

    def answer(call: Call) -> None:
        if call.is_watch:
            call.start()
            call.stay()
        else:
            page(pods if call.path.endswith("/pods") else [])(call)

    with tempfile.TemporaryDirectory() as made, KubeScript(answer) as server:
        file, log = Path(made) / "exporter.yml", io.StringIO()
        kubeconfig = write_kubeconfig(Path(made), server.url)
        file.write_text(
            f"kubernetes: [{{kubeconfig: {kubeconfig}, pod_labels: [app]}}]\ntarget_labels: [namespace, pod, workload]\n",
            encoding="utf-8",
        )
        hidden = {made: "FOLDER", **hide_port(server.url)}
        with closing(DrivenService(["--config.file", str(file)], log=log, log_format="json")) as service:
            while not _watches_all(server):
                time.sleep(0.05)
            before = -1
            # until a look finds no more than the one before: what is listed is taken in by threads of their own
            while (found := len(_list_targets(service.url))) != before or not found:
                before = found
                time.sleep(0.1)
                service.discover()
            hidden |= hide_port(service.url, "PORT3")
            with outputs.hiding(hidden):
                outputs.write("targets.txt", _ask(service.url, "/debug/targets", TEXT))
                outputs.write("metrics.txt", _ask(service.url, "/metrics", TEXT))
        with outputs.hiding(hidden):
            outputs.write("log.json", log.getvalue())


def _watches_all(server: KubeScript) -> bool:
    """Whether what was listed is watched by now: then each list has come."""
    calls = [*server.calls]
    watched = {call.path for call in calls if call.is_watch}
    return bool(watched) and {call.path for call in calls if not call.is_watch} <= watched


def _list_targets(url: str) -> list[Any]:
    found: list[Any] = json.loads(_get(url, "/debug/targets", TEXT)[2])["targets"]
    return found


def _ask(url: str, path: str, accept: str, *, method: str = "GET") -> str:
    """An answer as text: its status, its headers but for the date, its body."""
    status, headers, body = _get(url, path, accept, method=method)
    kept = "".join(f"{name}: {text}\n" for name, text in headers if name.lower() not in ("date", "content-length"))
    return f"{status}\n{kept}\n{body}"


def _get(url: str, path: str, accept: str, *, method: str = "GET") -> tuple[int, list[tuple[str, str]], str]:
    with closing(http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)) as connection:
        connection.request(method, path, headers={"Accept": accept})
        answer = connection.getresponse()
        return answer.status, answer.getheaders(), answer.read().decode()


@contextmanager
def _receiver() -> Iterator[Any]:
    """A receiver of OTLP, or None where OpenTelemetry's messages are not installed."""
    try:
        from tests.support.servers.otlp_receiver import receive
    except ModuleNotFoundError:
        with nullcontext():
            yield None
        return
    with receive() as receiver:
        receiver.held.set()
        yield receiver


def _read_otlp(bodies: list[bytes]) -> str:
    """The messages as text, metrics in the order in which they came, attributes by name."""
    from google.protobuf.text_format import MessageToString
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

    return "".join(MessageToString(ExportMetricsServiceRequest.FromString(body), as_utf8=True) for body in bodies)
