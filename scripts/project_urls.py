"""Puts the addresses of [project.urls] in pyproject.toml where a packaged file wants one: `--write` or `--check`.

Homepage, Documentation and Source go into the chart, the systemd unit and the labels of the image; the wheel and the Debian package read
them by themselves. An address that is not stated there stands nowhere: none is guessed, so none leads nowhere.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

from llm_serving_exporter.docgen.generated_files import write_or_check

CHART = Path("deploy/helm/llm-serving-exporter/Chart.yaml")
UNIT = Path("deploy/systemd/llm-serving-exporter.service")
DOCKERFILE = Path("deploy/container/Dockerfile")
# name in [project.urls] -> label of the image (github.com/opencontainers/image-spec, annotations)
_LABELS = {"Homepage": "url", "Documentation": "documentation", "Source": "source"}


def read_urls(project: str) -> dict[str, str]:
    """[project.urls] of a pyproject.toml; {} where it states none."""
    found: dict[str, str] = tomllib.loads(project)["project"].get("urls", {})
    return found


def write_chart(text: str, urls: Mapping[str, str]) -> str:
    """Chart.yaml with its home and its sources last."""
    kept = re.sub(r"^(home: .*|sources: .*)\n", "", text, flags=re.MULTILINE)
    home = f"home: {urls['Homepage']}\n" if "Homepage" in urls else ""
    return kept + home + (f"sources: [{urls['Source']}]\n" if "Source" in urls else "")


def write_unit(text: str, urls: Mapping[str, str]) -> str:
    """The unit with what `systemctl status` shows as its documentation."""
    kept = re.sub(r"^Documentation=.*\n", "", text, flags=re.MULTILINE)
    url = urls.get("Documentation") or urls.get("Homepage")
    return re.sub(r"^(Description=.*\n)", rf"\1Documentation={url}\n", kept, flags=re.MULTILINE) if url else kept


def write_dockerfile(text: str, urls: Mapping[str, str]) -> str:
    """The image's file with a label for each address, before what it copies."""
    kept = re.sub(
        rf"^LABEL org\.opencontainers\.image\.({'|'.join(_LABELS.values())})=.*\n", "", text, flags=re.MULTILINE
    )
    labels = [
        f'LABEL org.opencontainers.image.{label}="{urls[name]}"\n' for name, label in _LABELS.items() if name in urls
    ]
    return kept.replace("COPY --from=build", "".join(labels) + "COPY --from=build", 1)


WRITERS = {CHART: write_chart, UNIT: write_unit, DOCKERFILE: write_dockerfile}


def render(root: Path = Path()) -> dict[Path, str]:
    """What each file should say, by its path below the root of a checkout."""
    urls = read_urls((root / "pyproject.toml").read_text(encoding="utf-8"))
    return {path: write((root / path).read_text(encoding="utf-8"), urls) for path, write in WRITERS.items()}


if __name__ == "__main__":
    sys.exit(write_or_check("scripts/project_urls.py", __doc__, render(), (), None))
