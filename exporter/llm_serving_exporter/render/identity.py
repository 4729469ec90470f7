"""Who a target is, in a few words for a person: landing page, `once`."""

from __future__ import annotations

from llm_serving_exporter.model.target import Target


def describe_identity(target: Target) -> str:
    """Pod, workload, nodes and labels of its own, as far as they are known; "" where nothing is."""
    known = target.identity
    pod = "/".join(part for part in (known.namespace, known.pod) if part)
    kind = f"{known.workload_kind} " if known.workload_kind else ""
    container = f" ({known.container})" if known.container and pod else ""
    nodes = f"node{'' if len(target.nodes) == 1 else 's'} {', '.join(target.nodes)}" if target.nodes else ""
    parts = (
        f"{'pod' if known.pod else 'namespace'} {pod}{container}" if pod else "",
        f"{kind}{known.workload}" if known.workload else "",
        nodes,
        ", ".join(f"{name}={text}" for name, text in known.labels),
    )
    return "; ".join(part for part in parts if part)
