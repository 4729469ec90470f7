"""Where dashboards show what an alert is about, and what their viewers choose by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# the panel with which each dashboard below begins: alerts that fire about what its viewer chose
FIRING_PANEL = "What fires"

_OF_TARGETS = ("model_name", "role", "target")
# by UID of a dashboard the labels that its viewers choose by, beside the user's identity labels
CHOICES: Mapping[str, tuple[str, ...]] = {
    "llm-serving-phases": _OF_TARGETS,
    "llm-serving-latency": _OF_TARGETS,
    "llm-serving-kv": _OF_TARGETS,
    "llm-serving-cost": _OF_TARGETS,
    "llm-serving-exporter": _OF_TARGETS,
    "llm-serving-node-loss": ("model_name", "role"),
    "llm-serving-replica": ("model_name", "target"),
    "llm-serving-gpu": ("node", "gpu_name", "gpu"),
}


@dataclass(frozen=True, slots=True)
class Shown:
    """A panel of a dashboard."""

    # its UID without `llm-serving-`
    board: str
    # its title; by default the one with the alert alone, where no figure says more
    panel: str = FIRING_PANEL

    @property
    def uid(self) -> str:
        """Of the dashboard."""
        return f"llm-serving-{self.board}"
