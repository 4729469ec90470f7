"""Intel Gaudi's metric exporter: the table. Made from its source, not yet recorded.

Facts: docs.habana.ai, Prometheus Metric Exporter (1.23; port 41611), and Intel's exporter in Go of 2025, which names every sample and its
labels (Serial, UUID, device, id, fit, spi, driver, pod_namespace, pod_name). It names no product, so that its memory says which Gaudi it
is. Left out, because no document says the unit or that they only grow: habanalabs_energy, habanalabs_pcie_tx and _rx and their
"throughput".
"""

from __future__ import annotations

from llm_serving_exporter.gpu.page_table import DeviceTable, PageField

_GIBIBYTE = float(1 << 30)

TABLE = DeviceTable(
    name="gaudi_metric_exporter",
    title="Intel Gaudi metric exporter",
    fingerprints=(
        "habanalabs_utilization",
        "habanalabs_memory_total_bytes",
        "habanalabs_power_mW",
        "habanalabs_device_config",
    ),
    fields={
        "busy_ratio": PageField(("habanalabs_utilization",), factor=0.01, highest=100.0),
        "power_watts": PageField(("habanalabs_power_mW",), factor=1e-3, zero_is_unset=True),
        "power_limit_watts": PageField(("habanalabs_power_default_limit_mW",), factor=1e-3, zero_is_unset=True),
        "temperature_celsius.gpu": PageField(("habanalabs_temperature_onchip",), zero_is_unset=True, highest=200.0),
        "clock_hertz.sm": PageField(("habanalabs_clock_soc_mhz",), factor=1e6, zero_is_unset=True),
        "memory_used_bytes": PageField(("habanalabs_memory_used_bytes",)),
        "memory_total_bytes": PageField(("habanalabs_memory_total_bytes",), zero_is_unset=True),
        "remap_pending": PageField(("habanalabs_pending_rows_state",), highest=1.0),
    },
    uuid_labels=("UUID", "Serial"),
    index_label="id",
    products={"Gaudi 2": 96 * _GIBIBYTE, "Gaudi 3": 128 * _GIBIBYTE},
    pci_vendor=0x1DA3,
    source="https://docs.habana.ai/en/latest/Orchestration/Prometheus_Metric_Exporter.html",
)
