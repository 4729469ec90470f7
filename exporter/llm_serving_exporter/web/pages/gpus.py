"""The GPUs as HTML, or why there are none."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from llm_serving_exporter.model.gpu import DRIVER_SOURCES, GpuReading, GpuReadings, count_cards
from llm_serving_exporter.model.reading import View
from llm_serving_exporter.model.text import count_nouns
from llm_serving_exporter.render.html import NO_MARKUP, badge, facts, fill, header, join, level, note, row, table
from llm_serving_exporter.render.numbers import NOTHING, share, size, span
from llm_serving_exporter.render.sentences import explain_without_nvml, what_to_do, why_gpu_absent

MOST_GPUS = 64
_COLUMNS = ("busy", "DRAM bandwidth", "tensor cores", "power", "memory", "temperature", "slowed by")
# keys of GpuReading.slowdown
_SLOWDOWNS = {
    "sw_power_cap": "power cap",
    "hw_slowdown": "hardware",
    "sync_boost": "sync boost",
    "sw_thermal_slowdown": "heat",
    "hw_thermal_slowdown": "heat (hardware)",
    "hw_power_brake_slowdown": "power brake",
}


def render_gpus(view: View, now_monotonic: float) -> Markup:
    """The section about GPUs."""
    readings = view.gpus
    source = "NVML" if readings is None or readings.source in DRIVER_SOURCES else f"device exporter ({readings.source})"
    if readings is None:
        inside = fill('<p class="facts">There are no GPU readings: none was taken yet, or gpu.enabled is off.</p>')
    elif readings.attempt.reason is not None:
        inside = note("bad", f"{source}: {readings.attempt.detail}", what_to_do(readings.attempt.reason))
    elif not readings.gpus:
        inside = fill('<p class="facts">{} works, but no GPU is visible to the exporter.</p>', source)
    else:
        inside = _table(view, readings, readings.gpus)
    if readings is not None:
        driver = f"driver {readings.driver_version}" if readings.driver_version else ""
        source = NO_MARKUP if readings.source == "nvml" else fill("<b>{}</b>", readings.source)
        age = span(max(0.0, now_monotonic - readings.monotonic_seconds))
        inside = facts((source, driver, f"read {age} ago", _part_of_node(view, readings))) + inside
    inside += join(fill('<p class="facts">{}</p>', text) for text in explain_without_nvml(readings, view.targets))
    if view.kubelet is not None and view.kubelet.reason is not None:
        inside += note("bad", f"kubelet: {view.kubelet.detail}", what_to_do(view.kubelet.reason))
    return fill('<section class="card" id="gpus"><div class="title"><h2>GPUs</h2></div>{}</section>', inside)


def _part_of_node(view: View, readings: GpuReadings) -> str:
    """That the container sees only some of the node's GPUs; "" where it sees all, or that is not known."""
    cards = count_cards(readings.gpus)
    if readings.source != "nvml" or view.node_gpus is None or cards >= view.node_gpus:
        return ""
    return f"seen by this container: {cards} of the node's {count_nouns(view.node_gpus, 'GPU')}"


def _table(view: View, readings: GpuReadings, all_of_them: tuple[GpuReading, ...]) -> Markup:
    targets: dict[str, list[str]] = {}
    for reading in view.targets:
        for uuid in reading.gpus.uuids:
            targets.setdefault(uuid, []).append(reading.target.name)
    rows = [row(_name(gpu, targets.get(gpu.identity.uuid, ())), _cells(gpu)) for gpu in all_of_them[:MOST_GPUS]]
    left = len(all_of_them) - MOST_GPUS
    rest = (
        fill('<p class="facts">{} not shown here.</p>', count_nouns(left, "more GPU is", "more GPUs are"))
        if left > 0
        else NO_MARKUP
    )
    return table(header("GPU", _COLUMNS), rows) + rest


def _name(gpu: GpuReading, targets: Sequence[str]) -> Markup:
    identity = gpu.identity
    profile = f" MIG {identity.mig.profile}" if identity.mig else ""
    return fill(
        '{} {}<br><code class="soft" title="{}">{}</code> <span class="soft">{}</span>',
        identity.index,
        identity.name + profile,
        identity.uuid,
        short_uuid(identity.uuid),
        ", ".join(targets),
    )


def short_uuid(uuid: str) -> str:
    """The first part of a UUID, which is enough to tell the GPUs of one host apart: "GPU-0b1d5c9e"."""
    head, dash, rest = uuid.partition("-")
    return f"{head}{dash}{rest.partition('-')[0]}"


def _cells(gpu: GpuReading) -> list[str]:
    if gpu.lost:
        return [badge("lost", "bad"), *[NOTHING] * (len(_COLUMNS) - 1)]

    def or_why(value: str, field: str) -> str:
        code = gpu.absent.get(field)
        return fill('<span title="{}">{}</span>', why_gpu_absent(code), value) if value == NOTHING and code else value

    return [
        or_why(_level(gpu.busy_ratio), "busy_ratio"),
        or_why(_level(gpu.dram_bandwidth_ratio), "dram_bandwidth_ratio"),
        or_why(share(gpu.tensor_activity_ratio), "tensor_activity_ratio"),
        or_why(_power(gpu), "power_watts"),
        _memory(gpu),
        or_why(_temperature(gpu), "temperature_celsius"),
        _slowdown(gpu),
    ]


def _level(ratio: float | None) -> str:
    return NOTHING if ratio is None else level(ratio, share(ratio))


def _power(gpu: GpuReading) -> str:
    if gpu.power_watts is None:
        return NOTHING
    limit = f" of {gpu.power_limit_watts:.0f}" if gpu.power_limit_watts is not None else ""
    return f"{gpu.power_watts:.0f}{limit} W"


def _memory(gpu: GpuReading) -> str:
    used = gpu.memory_used_bytes
    total = gpu.memory_total_bytes if gpu.memory_total_bytes is not None else gpu.identity.memory_total_bytes
    if used is None or not total:
        return size(used)
    return f"{size(used)} of {size(total)}"


def _temperature(gpu: GpuReading) -> str:
    names = {"gpu": "", "memory": "memory "}
    found = [
        f"{names.get(sensor, sensor + ' ')}{celsius:.0f} °C" for sensor, celsius in gpu.temperature_celsius.items()
    ]
    return join(found, "<br>") or NOTHING


def _slowdown(gpu: GpuReading) -> str:
    if gpu.slowdown is None:
        return fill('<span title="{}">{}</span>', why_gpu_absent(gpu.absent.get("slowdown", "error")), NOTHING)
    held = [_SLOWDOWNS.get(reason, reason.replace("_", " ")) for reason, holds in gpu.slowdown.items() if holds]
    return join((badge(words, "warn") for words in held), "<br>") or "nothing"
