"""Check gpu: cards that fail or hold back."""

from __future__ import annotations

from llm_serving_alerts.declare import Alert, Text, alert_matchers, label
from llm_serving_alerts.promql import Dialect, one_of, series
from llm_serving_alerts.records.identity import KNOWN_GPUS
from llm_serving_alerts.rules import Check, Severity
from llm_serving_alerts.settings import AlertSettings, Settings
from llm_serving_exporter.catalogue.spec import GPU_LABELS

# hardware faults (facts nvml-gpus; NVIDIA's XID catalogue). 13, 31 and 43 are the application's; 63 and 92 inform
FATAL_XIDS = ("48", "62", "64", "74", "79", "95", "119", "120")
# as the exporter names a MIG instance (its parent is named too), and a card that gave no UUID
_NO_CARD = "MIG-.*|unidentified-.*"
# not sw_power_cap: a busy card at its power limit is what was paid for
SLOWDOWNS = ("hw_slowdown", "hw_thermal_slowdown", "sw_thermal_slowdown", "hw_power_brake_slowdown")


def _where(dialect: Dialect) -> str:
    return " ".join(
        [*(label(name) for name in dialect.external), f"{label('node')} {label('gpu_name')} {label('gpu')}"]
    )


def _xid(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> str:
    selector = series("gpu_xid_events_total", one_of("xid", FATAL_XIDS))
    return f"{dialect.by_gpu(dialect.increase(selector, 900), 'xid', gpus=KNOWN_GPUS)} > 0"


def _xid_text(dialect: Dialect, settings: Settings, own: AlertSettings) -> Text:
    return Text(
        f"{_where(dialect)}: XID {label('xid')}",
        f"The driver reported XID {label('xid')} within the last 15m: a fault of the card, its memory, its link or its firmware.",
        "cordon the node, take this card's replicas out of the router; the runbook says what each XID asks for",
    )


def _ecc(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> str:
    errors = dialect.increase(series("gpu_ecc_errors_total", kind="uncorrected"), 3600)
    return f"{dialect.by_gpu(errors, gpus=KNOWN_GPUS)} > 0"


def _ecc_text(dialect: Dialect, settings: Settings, own: AlertSettings) -> Text:
    return Text(
        f"{_where(dialect)}: uncorrectable memory errors",
        "{{ printf `%.0f` $value }} memory errors that could not be corrected in the last hour. What was computed from that memory is wrong or was killed.",
        "see whether its replica serves; plan a reset where a remap is pending",
    )


def _remap(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> str:
    pending, failed = (dialect.by_gpu(series(name)) for name in ("gpu_remap_pending", "gpu_remap_failed"))
    return f"{failed} * 2 == 2 or on ({dialect.key('gpu')}) {pending} == 1"


def _remap_text(dialect: Dialect, settings: Settings, own: AlertSettings) -> Text:
    return Text(
        f"{_where(dialect)}: memory rows wait to be remapped, or could not be",
        "{{ if gt $value 1.5 }}Remapping failed: the card has no spare rows.{{ else }}A row is remapped at the next reset.{{ end }}",
        "plan a reset; where remapping failed, replace the card",
    )


def _slowdown(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> str:
    held = dialect.by_gpu(series("gpu_slowdown", one_of("reason", SLOWDOWNS)))
    busy = dialect.bare(series("gpu_busy_ratio"), "gpu")
    return f"{held} == 1 and on ({dialect.key('gpu')}) {busy} > 0"


def _slowdown_text(dialect: Dialect, settings: Settings, own: AlertSettings) -> Text:
    names = (*dialect.external, "gpu")
    matchers, values = alert_matchers(names)
    held = series("gpu_slowdown", f"{matchers},{one_of('reason', SLOWDOWNS)}")
    by_reason = dialect.labels("reason")
    query = f'printf `max by ({by_reason}) ({held}) == 1` {values} | query | sortByLabel "reason"'
    reasons = (
        f"{{{{ range $i, $one := {query} }}}}{{{{ if $i }}}}, {{{{ end }}}}{{{{ $one.Labels.reason }}}}{{{{ end }}}}"
    )
    return Text(
        f"{_where(dialect)}: clocks are held down while busy",
        f"Reason: {reasons}. The card does less than its ceilings say.",
        "check cooling and power of the node",
    )


def _lost(dialect: Dialect, settings: Settings, own: AlertSettings, tier: str) -> str:
    # what becomes of MIG instances their card says; one that never said who it is was never there
    shown = series("gpu_up", f'gpu!~"{_NO_CARD}"')
    before, seen_by = dialect.offset(shown, 3600), dialect.key("instance")
    # an exporter that reads its driver and no longer shows a card has come up without it; where an exporter is gone or its driver does
    # not speak, nobody knows: a pod that went took its exporter and its view of the cards along
    of_gpu = dialect.key("gpu")
    vanished = f"{before} == 1 and on ({seen_by}) {series('nvml_up')} == 1 unless on ({of_gpu}) {shown}"
    # of a card that two exporters show, it is enough that one of them reads it
    lost = f"{dialect.bare(shown, 'gpu')} == 0 or on ({of_gpu}) {dialect.bare(vanished, 'gpu')} * 0"
    return f"({lost}) * on ({of_gpu}) group_left (gpu_name, node) {KNOWN_GPUS}"


def _lost_text(dialect: Dialect, settings: Settings, own: AlertSettings) -> Text:
    return Text(
        f"{_where(dialect)}: the GPU no longer answers",
        "It did before. It fell off the bus, or the driver gave it up; its replicas are gone or about to be.",
        "cordon the node, take the dead replicas out of the router, read the kernel log for NVRM lines",
    )


GPU = (
    Alert("GPUXid", Check.GPU, (*GPU_LABELS, "xid"), {Severity.CRITICAL: ""}, _xid, _xid_text),
    Alert("GPUEcc", Check.GPU, GPU_LABELS, {Severity.WARNING: ""}, _ecc, _ecc_text),
    Alert("GPURemapPending", Check.GPU, GPU_LABELS, {Severity.WARNING: ""}, _remap, _remap_text),
    Alert("GPUSlowdown", Check.GPU, GPU_LABELS, {Severity.WARNING: ""}, _slowdown, _slowdown_text),
    Alert("GPULost", Check.GPU, GPU_LABELS, {Severity.CRITICAL: ""}, _lost, _lost_text),
)  # fmt: skip
