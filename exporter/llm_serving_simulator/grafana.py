"""A Grafana of one's own, for the demo: anybody on this machine may look, nobody can change anything, gone when closed."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Mapping
from pathlib import Path

from llm_serving_simulator.child import Child

# where Debian's and RedHat's packages of grafana.com have it; a tarball has its own folder above bin/
_HOMES = (Path("/usr/share/grafana"),)
_READY_SECONDS = 60.0


def find_grafana() -> tuple[str, Path] | None:
    """The program and its home folder; None where Grafana is not on PATH, or its home is not found."""
    program = shutil.which("grafana")
    if program is None:
        return None
    homes = (Path(program).resolve().parent.parent, *_HOMES)
    home = next((one for one in homes if (one / "conf" / "defaults.ini").is_file()), None)
    return None if home is None else (program, home)


class Grafana(Child):
    """The program as a child process with these dashboards (texts by file name) and provisioning (texts by file name, in the folders that
    Grafana's `provisioning` has). `{dashboards}` in them is where the dashboards are. Raises as `Child`."""

    def __init__(
        self,
        program: str,
        home: Path,
        dashboards: Mapping[str, str],
        provisioning: Mapping[str, str],
        port: int = 3000,
        cancelled: threading.Event | None = None,
    ) -> None:
        def prepare(folder: Path, address: str) -> list[str]:
            shown = folder / "dashboards"
            shown.mkdir(exist_ok=True)
            for name, text in dashboards.items():
                (shown / name).write_text(text, encoding="utf-8")
            for name, text in provisioning.items():
                file = folder / "provisioning" / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text.replace("{dashboards}", str(shown)), encoding="utf-8")
            host, _, number = address.rpartition(":")
            settings = {
                "server.http_addr": host,
                "server.http_port": number,
                "paths.data": str(folder / "data"),
                "paths.logs": str(folder / "logs"),
                "paths.plugins": str(folder / "plugins"),
                "paths.provisioning": str(folder / "provisioning"),
                "auth.anonymous.enabled": "true",
                "auth.anonymous.org_role": "Viewer",
                "analytics.reporting_enabled": "false",
                "analytics.check_for_updates": "false",
                "analytics.check_for_plugin_updates": "false",
                "news.news_feed_enabled": "false",
                "log.mode": "console",
                "log.level": "warn",
            }
            given = [f"cfg:default.{name}={value}" for name, value in settings.items()]
            return [program, "server", f"--homepath={home}", *given]

        super().__init__("grafana", prepare, port, cancelled, ready_path="/api/health", ready_seconds=_READY_SECONDS)
