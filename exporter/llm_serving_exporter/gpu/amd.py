"""AMD's device-metrics-exporter: the table. Made from its source, not yet recorded.

Facts: pkg/amdgpu/gpuagent/gpuagent_gpu_metrics.go and docs/configuration/metricslist.md of ROCm/device-metrics-exporter at afd0fe8
(2026-08-21). All of it are gauges, counters too. Labels that are always there: gpu_id, card_model, gpu_partition_id,
gpu_compute_partition_type, serial_number, hostname; others (gpu_uuid, card_series) where its configuration asks for them. Power,
temperature and energy that a card does not tell are written as 0, and on parts of a card (DPX, QPX, CPX) the sensors stand on part 0 alone.

"MB" of memory is 10^6 bytes: tools/metricutil/metrics_mini.txt shows 68702 for a card of 64 GiB.
"""

from __future__ import annotations

from llm_serving_exporter.gpu.page_table import DeviceTable, Join, PageField

_PERCENT = 0.01
_SOURCE = "https://github.com/ROCm/device-metrics-exporter/blob/afd0fe81cfb1a36cf15e79edb057e92adb197946/pkg/amdgpu/gpuagent/gpuagent_gpu_metrics.go"


def _names(*names: str) -> tuple[str, ...]:
    """With the prefix that its configuration may set (`MetricsFieldPrefix: amd`, as in its own example), too."""
    return tuple(spelt for name in names for spelt in (name, f"amd_{name}"))


def _share(*names: str) -> PageField:
    return PageField(_names(*names), factor=_PERCENT, highest=100.0)


def _total(name: str, factor: float = 1.0, join: Join = Join.ONE) -> PageField:
    return PageField(_names(name), factor=factor, join=join)


TABLE = DeviceTable(
    name="amd_device_metrics_exporter",
    title="AMD device-metrics-exporter",
    fingerprints=_names(
        "gpu_umc_activity", "gpu_gfx_activity", "gpu_nodes_total", "gpu_package_power", "gpu_total_vram"
    ),
    fields={
        "busy_ratio": _share("gpu_gfx_activity"),
        # the share of time in which the memory controller worked; never bandwidth, of which it would be an upper bound at best
        "memory_active_ratio": _share("gpu_umc_activity"),
        # MFMA units; only where its profiler is switched on
        "tensor_activity_ratio": _share("gpu_prof_tensor_active_percent"),
        "power_watts": PageField(
            _names("gpu_package_power", "gpu_power_usage", "gpu_average_package_power"), ranked=True, zero_is_unset=True
        ),
        "energy_joules_total": PageField(_names("gpu_energy_consumed"), factor=1e-6, zero_is_unset=True),
        "temperature_celsius.gpu": PageField(
            _names("gpu_junction_temperature", "gpu_edge_temperature"), ranked=True, zero_is_unset=True, highest=200.0
        ),
        "temperature_celsius.memory": PageField(_names("gpu_memory_temperature"), zero_is_unset=True, highest=200.0),
        # one for each die
        "clock_hertz.sm": PageField(_names("gpu_clock"), factor=1e6, where={"clock_type": "system"}, join=Join.HIGHEST),
        "clock_hertz.memory": PageField(
            _names("gpu_clock"), factor=1e6, where={"clock_type": "memory"}, join=Join.HIGHEST
        ),
        "memory_used_bytes": PageField(_names("gpu_used_vram"), factor=1e6),
        "memory_total_bytes": PageField(_names("gpu_total_vram"), factor=1e6, zero_is_unset=True),
        "ecc_errors_total.corrected": _total("gpu_ecc_correct_total"),
        "ecc_errors_total.uncorrected": _total("gpu_ecc_uncorrect_total"),
        # shares of time in which a limit held the clocks down: package power, heat of socket, memory and regulators, the processor's own
        "slowdown.sw_power_cap": _share("gpu_violation_ppt_residency_percentage"),
        "slowdown.sw_thermal_slowdown": PageField(
            _names(
                "gpu_violation_socket_thermal_residency_percentage",
                "gpu_violation_hbm_thermal_residency_percentage",
                "gpu_violation_vr_thermal_residency_percentage",
            ),
            factor=_PERCENT,
            highest=100.0,
            join=Join.HIGHEST,
        ),
        "slowdown.hw_thermal_slowdown": _share("gpu_violation_processor_hot_residency_percentage"),
        # announced, and not filled by every release
        "pcie_bytes_total.rx": _total("pcie_rx"),
        "pcie_bytes_total.tx": _total("pcie_tx"),
        # XGMI, in KB by link
        "nvlink_bytes_total.rx": _total("gpu_xgmi_link_rx", 1e3, Join.SUM),
        "nvlink_bytes_total.tx": _total("gpu_xgmi_link_tx", 1e3, Join.SUM),
    },
    uuid_labels=("gpu_uuid", "GPU_UUID"),
    index_label="gpu_id",
    name_labels=("card_series", "card_model"),
    card_label="serial_number",
    part_label="gpu_partition_id",
    # both dies of an MI250X have the card's serial number, and are no parts that a user made
    partition_label="gpu_compute_partition_type",
    unpartitioned=frozenset({"", "spx", "none", "na"}),
    # a part is one or several of the card's XCDs: eight of an MI300X, six of an MI300A, four of an MI308X
    parts_of_mode={"dpx": 2, "tpx": 3, "qpx": 4, "cpx": 8},
    parts_of_product={"mi300a": {"cpx": 6}, "mi308": {"cpx": 4}},
    pci_vendor=0x1002,
    of_whole_card=frozenset({"busy_ratio", "memory_active_ratio", "tensor_activity_ratio"}),
    source=_SOURCE,
)
