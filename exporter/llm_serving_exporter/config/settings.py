"""What is said about a target in several places -> one Target."""

from __future__ import annotations

from dataclasses import dataclass, fields

from llm_serving_exporter.config.http import Auth, Tls
from llm_serving_exporter.model.model_settings import ModelSettings
from llm_serving_exporter.model.target import HttpSettings, Role, Secret, Target
from llm_serving_exporter.schema.context import Host
from llm_serving_exporter.schema.problems import Place
from llm_serving_exporter.schema.url import Address

AUTO = "auto"
# the share of the interval that one reading may take by default, and its upper bound
TIMEOUT_SHARE = 0.8
LONGEST_DEFAULT_TIMEOUT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class TargetSettings:
    """What one place says about a target. None = it says nothing, so that the next place in line decides."""

    name: str | None = None
    address: Address | None = None
    metrics_path: str | None = None
    runtime: str | None = None
    model_name: str | None = None
    role: str | None = None
    group: str | None = None
    nodes: tuple[str, ...] | None = None
    gpus: tuple[str | int, ...] | None = None
    gpu_count: int | None = None
    gpu_share: float | None = None
    batch_limit_requests: int | None = None
    context_limit_tokens: int | None = None
    gpu_model: str | None = None
    tensor_parallel_size: int | None = None
    pipeline_parallel_size: int | None = None
    data_parallel_size: int | None = None
    experts_shared: bool | None = None
    model: ModelSettings | None = None
    interval_seconds: float | None = None
    timeout_seconds: float | None = None
    max_series: int | None = None
    max_body_bytes: int | None = None
    auth: Auth | None = None
    headers: tuple[tuple[str, str | Secret], ...] | None = None
    tls: Tls | None = None

    def over(self, under: TargetSettings) -> TargetSettings:
        """These settings, completed by those of `under`. auth, headers, tls and nodes are taken as a whole."""
        merged = {}
        for item in fields(self):
            own = getattr(self, item.name)
            merged[item.name] = getattr(under, item.name) if own is None else own
        return TargetSettings(**merged)


def build_target(settings: TargetSettings, place: Place, host: Host) -> Target:
    """The target of complete settings. Without an address (a block of defaults) its name and URL are ""."""
    interval = settings.interval_seconds
    # the process's own settings are the last in line and have both
    assert interval is not None
    assert settings.max_series is not None
    assert settings.max_body_bytes is not None
    if settings.gpus is not None and settings.gpu_count is not None and len(settings.gpus) != settings.gpu_count:
        what = f"gpus names {len(settings.gpus)} GPUs, gpu_count says {settings.gpu_count}"
        place.refuse(what, "Remove gpu_count where gpus is given.")
    auth = settings.auth or Auth()
    headers = settings.headers or ()
    if (auth.bearer_token or auth.basic_username) and any(name.lower() == "authorization" for name, _ in headers):
        place.refuse("both auth and a header Authorization are given", "Keep one of them.")
    tls = settings.tls or Tls()
    address = settings.address
    return Target(
        name=settings.name or (address.name(host.name) if address else ""),
        url=address.url if address else "",
        metrics_path=settings.metrics_path,
        runtime=None if settings.runtime == AUTO else settings.runtime,
        model_name=settings.model_name,
        role=None if settings.role is None else Role(settings.role),
        group=settings.group or "",
        nodes=nodes_of(settings.nodes, address, host),
        gpus=settings.gpus,
        gpu_count=settings.gpu_count,
        gpu_share=settings.gpu_share,
        batch_limit_requests=settings.batch_limit_requests,
        context_limit_tokens=settings.context_limit_tokens,
        gpu_model=settings.gpu_model,
        tensor_parallel_size=settings.tensor_parallel_size,
        pipeline_parallel_size=settings.pipeline_parallel_size,
        data_parallel_size=settings.data_parallel_size,
        experts_shared=settings.experts_shared,
        model=settings.model or ModelSettings(),
        interval_seconds=interval,
        max_series=settings.max_series,
        http=HttpSettings(
            timeout_seconds=settings.timeout_seconds or default_timeout(interval),
            max_body_bytes=settings.max_body_bytes,
            bearer_token=auth.bearer_token,
            basic_username=auth.basic_username,
            basic_password=auth.basic_password,
            headers=headers,
            ca_file=tls.ca_file,
            cert_file=tls.cert_file,
            key_file=tls.key_file,
            server_name=tls.server_name,
            insecure_skip_verify=tls.insecure_skip_verify,
        ),
    )


def nodes_of(configured: tuple[str, ...] | None, address: Address | None, host: Host) -> tuple[str, ...]:
    """The nodes of a target: as configured, else the exporter's node for a local server, else () = unknown."""
    if configured:
        return configured
    return (host.node,) if address is not None and address.is_local(host.name) else ()


def default_timeout(interval_seconds: float) -> float:
    """80 % of the interval, at most 10 s."""
    return min(TIMEOUT_SHARE * interval_seconds, LONGEST_DEFAULT_TIMEOUT_SECONDS)
