"""Where an exporter stands to its targets."""

from __future__ import annotations

from enum import StrEnum


class Mode(StrEnum):
    """What goes with the exporter when it goes."""

    SIDECAR = "sidecar"  # in the pod of the engine that it reads: it comes and goes with it
    NODE = "node"  # on the node of its targets
    CENTRAL = "central"  # elsewhere
