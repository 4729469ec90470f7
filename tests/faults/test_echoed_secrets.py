"""A server that repeats in labels, names, documents and errors what it was sent: nothing that the exporter says shows a secret."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.builders.recordings import page as recorded_page
from tests.support.quick import keep_quick
from tests.support.servers import faultbehaviours as fault
from tests.support.servers.exporter_process import Exporter
from tests.support.servers.faultserver import FaultServer

pytestmark = pytest.mark.process

TOKEN, HEADER, PASSWORD = "sk-pl4nted/token+1", 'pl4nted "header" key', "pl4ntedpassword"
PAIR = base64.b64encode(f"me:{PASSWORD}".encode()).decode()
PLANTED = ("pl4nted", PAIR)
NOT_SENT = "sk_pl4nted_by_nobody"  # it is no secret: a name like any other
PAGE = recorded_page("vllm-0.32", 60)


class Repeating:
    """A server that got some secrets, one of which it takes for its model's name."""

    def __init__(self, *sent: str) -> None:
        self.sent = sent

    def page(self) -> bytes:
        """They stand in the model's name and in labels that are published and that are not, beside HELP lines."""
        labels = [sent.replace("\\", r"\\").replace('"', r"\"") for sent in self.sent]
        model = re.search(rb'model_name="[^"]*"', PAGE)
        page = PAGE.replace(model[0], f'model_name="m {labels[0]}"'.encode())
        more = [f"# HELP vllm:new_{number}_total {sent}" for number, sent in enumerate(self.sent)]
        more += [f'vllm:new_{number}_total{{said="{label}"}} 1' for number, label in enumerate(labels)]
        more += [f'vllm:cache_config_info{{said="{label}",cache_dtype="{label}"}} 1' for label in labels]
        return page + "".join(f"{line}\n" for line in more).encode()

    def document(self) -> bytes:
        """They stand in what becomes the version, in names of models and in words of an error; slashes are escaped, as PHP does."""
        said = {
            "data": [{"id": f"m {sent}", "root": sent, "max_model_len": 100} for sent in self.sent],
            "version": f"0.1+{self.sent[0]}",
            "detail": [f"refused: {sent}" for sent in self.sent],
        }
        return json.dumps(said).replace("/", r"\/").encode()

    def list(self) -> bytes:
        """A list of http_sd."""
        labels = {"team": self.sent[0], "__meta_said": self.sent[0], "role": self.sent[0]}
        return json.dumps([{"targets": ["127.0.0.1:9"], "labels": labels}]).encode()

    def behaviours(self) -> dict[str, fault.Behaviour]:
        json_type = "application/json"
        strange = f'apples_total{{x="{self.sent[0]}"}} 1\n{NOT_SENT} 1\n'
        return {
            "/metrics": fault.page(self.page()),
            "/refused": fault.status(500, self.document(), json_type),
            "/malformed": fault.page(f'x{{a="{self.sent[0]}" 1\n{self.sent[0]}\n'.encode()),
            "/moved": fault.redirect(f"http://127.0.0.9/{self.sent[0]}", body=self.sent[0].encode()),
            "/typed": fault.page(b"x", content_type=f"text/{self.sent[0]}"),
            "/strange": fault.page(strange.encode()),
            "/v1/models": fault.page(self.document(), content_type=json_type),
            "/version": fault.page(self.document(), content_type=json_type),
            "/sd": fault.page(self.list(), content_type=json_type),
            "/sd-refused": fault.status(403, self.document(), json_type),
        }


@pytest.fixture
def servers() -> Iterator[list[FaultServer]]:
    sent = (TOKEN, HEADER), (HEADER, TOKEN), (PASSWORD, PAIR), (PAIR, PASSWORD)
    with ExitStack() as stack:
        yield [stack.enter_context(FaultServer(Repeating(*one).behaviours())) for one in sent]


def configuration(folder: Path, servers: list[FaultServer]) -> Path:
    (folder / "t").write_text(TOKEN)
    (folder / "h").write_text(HEADER)
    (folder / "p").write_text(PASSWORD)
    token = f"auth: {{bearer_token_file: {folder}/t}}"
    ways = (
        token + f", headers: {{X-Key: {{file: {folder}/h}}}}",
        f"auth: {{basic: {{username: me, password_file: {folder}/p}}}}",
    )
    lines = ["scrape: {interval: 500ms, timeout: 400ms}", "gpu: {enabled: false}", "targets:"]
    for number, server in enumerate(servers):
        way = ways[number // 2]
        lines.append(f"- {{name: good{number}, url: '{server.url}', {way}}}")
        for path in ("refused", "malformed", "moved", "typed", "strange"):
            lines.append(
                f"- {{name: {path}{number}, url: '{server.url}', metrics_path: /{path}, runtime: vllm, {way}}}"
            )
    lines.append("http_sd:")
    for path in ("sd", "sd-refused"):
        lines.append(f"- {{url: '{servers[0].url}/{path}', refresh_interval: 5s, hosts: [127.0.0.1], {token}}}")
    path = folder / "exporter.yml"
    path.write_text("\n".join(lines) + "\n")
    return path


def leaks(text: str) -> list[str]:
    text = text.replace(NOT_SENT, "")
    return [line for line in text.splitlines() if any(one in line for one in PLANTED)]


def test_no_page_series_or_log_line_shows_what_a_server_repeats(tmp_path: Path, servers: list[FaultServer]) -> None:
    path = configuration(tmp_path, servers)
    with Exporter("--config.file", str(path), "--log.level", "debug") as exporter:
        page = exporter.until(
            lambda page: all(page.total("target_up", target=f"good{number}") == 1 for number in range(len(servers))),
            "the pages that repeat",
        )
        exporter.after_ticks(30)
        assert 'model_name="m ***"' in page.text
        for shown in ("/metrics", "/", "/debug/targets", "/?target=good0", "/nothing"):
            answer = exporter.get(shown)
            assert answer.content, shown
            assert leaks(answer.text) == [], shown
        debug = exporter.get("/debug/targets").text
        assert "***" in debug
        assert "answered /refused with 500" in debug
    asked = {request.headers.get("authorization") for server in servers for request in server.requests}
    assert asked == {f"Bearer {TOKEN}", f"Basic {PAIR}"}
    log = "\n".join(exporter.log)
    assert "500" in log
    assert leaks(log) == []


@pytest.mark.parametrize(
    "words",
    keep_quick(["once --wait 100ms", "once --wait 100ms --json", "check-config"], lambda words: "--json" not in words),
)
def test_no_command_shows_what_a_server_repeats(tmp_path: Path, servers: list[FaultServer], words: str) -> None:
    command = [sys.executable, "-m", "llm_serving_exporter", *words.split(), "--config.file"]
    path = str(configuration(tmp_path, servers))
    done = subprocess.run([*command, path], capture_output=True, text=True, timeout=120)
    assert leaks(done.stdout + done.stderr) == []
    if "--json" in words:
        assert json.loads(done.stdout)
    assert "***" in done.stdout + done.stderr
