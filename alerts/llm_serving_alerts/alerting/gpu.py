"""Check gpu: cards that fail or hold back."""

from __future__ import annotations

from llm_serving_alerts.declare import Alert, Shown, Text, alert_matchers, label, of_fleet, say_each
from llm_serving_alerts.promql import HOUR, MINUTE, Dialect, one_of, seconds_text, series
from llm_serving_alerts.records.bands import SLOWDOWNS, SLOWED
from llm_serving_alerts.records.identity import KNOWN_GPUS
from llm_serving_alerts.rules import Check, Severity
from llm_serving_alerts.settings import SPAN, AlertSettings, Settings
from llm_serving_exporter.catalogue.spec import GPU_LABELS

# hardware faults (facts nvml-gpus; NVIDIA's XID catalogue). 13, 31 and 43 are the application's; 63 and 92 inform
FATAL_XIDS = ("48", "62", "64", "74", "79", "95", "119", "120")
# as the exporter names a MIG instance (its parent is named too), and a card that gave no UUID
_NO_CARD = "MIG-.*|unidentified-.*"
XID_SECONDS = 900.0
# a row that could not be remapped says more than one that waits
_ROWS = ("gpu_remap_failed", "gpu_remap_pending")


def _where(dialect: Dialect) -> str:
    return f"{of_fleet(dialect)}{label('node')} {label('gpu_name')} {label('gpu')}"


def _failed(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> tuple[str, Text]:
    fatal = dialect.increase(series("gpu_xid_events_total", one_of("xid", FATAL_XIDS)), XID_SECONDS)
    reported = f"{dialect.bare(fatal, 'gpu')} > 0"
    of_gpu = dialect.key("gpu")
    expr = (
        f"({reported} or on ({of_gpu}) {_lost(dialect, own)}) * on ({of_gpu}) group_left (gpu_name, node) {KNOWN_GPUS}"
    )
    matchers, values = alert_matchers((*dialect.external, "gpu"))
    fatal = dialect.increase(series("gpu_xid_events_total", f"{matchers},{one_of('xid', FATAL_XIDS)}"), XID_SECONDS)
    query = f"printf `max by ({dialect.labels('xid')}) ({fatal}) > 0` {values} | query"
    xids = say_each(query, "xid", "{{ $one.Labels.xid }}")
    return expr, Text(
        f"{_where(dialect)}: {{{{ if gt $value 0.0 }}}}XID {xids}{{{{ else }}}}the GPU no longer answers{{{{ end }}}}",
        f"{{{{ if gt $value 0.0 }}}}The driver reported XID {xids} within the last {seconds_text(XID_SECONDS)}: a fault of the card, its memory, its link or "
        "its firmware.{{ else }}It did before. It fell off the bus, or the driver gave it up; its replicas are gone or about to be.{{ end }}",
        "cordon the node, take this card's replicas out of the router; the runbook says what each XID asks for",
    )


def _lost(dialect: Dialect, own: AlertSettings) -> str:
    """GPUs that have not answered for so long; 0 each."""
    # what becomes of MIG instances their card says; one that never said who it is was never there
    shown = series("gpu_up", f'gpu!~"{_NO_CARD}"')
    of_gpu, seen_by = dialect.key("gpu"), dialect.key("instance")
    # of a card that two exporters show, it is enough that one of them reads it
    answered = dialect.apply_over_time("max_over_time", shown, own["silent"])
    silent = f"{dialect.bare(answered, 'gpu')} == 0"
    # an exporter that reads its driver and no longer shows a card has come up without it; where an exporter is gone or its driver does
    # not speak, nobody knows: a pod that went took its exporter and its view of the cards along
    before = dialect.offset(shown, HOUR)
    reads = f"{dialect.apply_over_time('min_over_time', series('nvml_up'), own['silent'])} == 1"
    # a machine that a cloud starts again, or another one at the same address, has other cards: as many as before are none lost
    cards = f"max by ({dialect.key('instance', 'gpu')})"
    had = f"count by ({seen_by}) ({cards} ({before} == 1))"
    has = f"(count by ({seen_by}) ({cards} ({answered})) or on ({seen_by}) max by ({seen_by}) ({reads}) * 0)"
    fewer = f"({had} > on ({seen_by}) {has})"
    vanished = f"{before} == 1 and on ({seen_by}) {reads} and on ({seen_by}) {fewer} unless on ({of_gpu}) {answered}"
    return f"({silent} or on ({of_gpu}) {dialect.bare(vanished, 'gpu')} * 0)"


def _memory(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> tuple[str, Text]:
    of_gpu = dialect.key("gpu")
    errors = dialect.increase(series("gpu_ecc_errors_total", kind="uncorrected"), HOUR)
    counted = dialect.by_gpu(errors, gpus=KNOWN_GPUS)
    rows = " or ".join(
        f"{dialect.by_gpu(dialect.apply_over_time('min_over_time', series(name), own['waiting']))} == 1"
        for name in _ROWS
    )
    expr = f"{counted} > 0 or on ({of_gpu}) ({rows}) * 0"
    matchers, values = alert_matchers((*dialect.external, "gpu"))
    failed, pending = (f"{{{{ if printf `{series(name, matchers)} == 1` {values} | query }}}}" for name in _ROWS)
    return expr, Text(
        f"{_where(dialect)}: {{{{ if gt $value 0.0 }}}}uncorrectable memory errors{{{{ else }}}}memory rows wait to be remapped, or could not be{{{{ end }}}}",
        "{{ if gt $value 0.0 }}{{ printf `%.0f` $value }} memory errors that could not be corrected in the last hour. What was computed from that memory "
        f"is wrong or was killed.{{{{ end }}}}{failed} Remapping failed: the card has no spare rows.{{{{ else }}}}{pending} A row is remapped at the next "
        "reset.{{ end }}{{ end }}",
        "see whether its replica serves; plan a reset where a remap is pending, replace the card where it failed",
    )


def _slowdown(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> tuple[str, Text]:
    expr = dialect.half(SLOWED, own.for_seconds)
    matchers, values = alert_matchers((*dialect.external, "gpu"))
    held = series("gpu_slowdown", f"{matchers},{one_of('reason', SLOWDOWNS)}")
    # also between two of its spells
    lately = dialect.apply_over_time("max_over_time", held, settings.alerts["GPUSlowdown"].for_seconds or MINUTE)
    query = f"printf `max by ({dialect.labels('reason')}) ({lately}) == 1` {values} | query"
    reasons = say_each(query, "reason", "{{ $one.Labels.reason }}")
    return expr, Text(
        f"{_where(dialect)}: clocks are held down while busy",
        f"Reason: {reasons}. It held for {seconds_text(own.for_seconds)} or more of the last {seconds_text(2 * own.for_seconds)}. The card does less than its ceilings say.",
        "check cooling and power of the node",
    )


GPU = (
    Alert("GPUFailed", Check.GPU, GPU_LABELS, {Severity.CRITICAL: ""}, _failed, Shown("gpu", "GPUs that are missing or at fault"), {"silent": SPAN}),
    Alert("GPUMemoryFault", Check.GPU, GPU_LABELS, {Severity.WARNING: ""}, _memory, Shown("gpu", "ECC memory errors"), {"waiting": SPAN}),
    Alert("GPUSlowdown", Check.GPU, GPU_LABELS, {Severity.WARNING: ""}, _slowdown, Shown("gpu", "GPUs with lowered clocks, by reason"), halves=True),
)  # fmt: skip
