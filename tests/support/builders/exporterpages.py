"""Pages of device exporters for tests, made from their sources: names, labels and units as those have them. None was recorded.

AMD: gpuagent_gpu_metrics.go of ROCm/device-metrics-exporter (afd0fe8), its mandatory labels and the excerpts of its
docs/configuration/metricslist.md. Gaudi: Intel's metric exporter of 2025 and docs.habana.ai.
"""

from collections.abc import Mapping

from llm_serving_exporter.fetch.page import PageParser
from llm_serving_exporter.gpus.device_page import WANTED
from llm_serving_exporter.model.sample import Page, Samples

AMD_CARD = "692247001282"
# of one card, whole; the second is the other die of an MI250X, or another card
_AMD_VALUES: Mapping[str, float] = {
    "gpu_package_power": 731, "gpu_power_usage": 729, "gpu_average_package_power": 0, "gpu_energy_consumed": 4.2e15,
    "gpu_junction_temperature": 71, "gpu_edge_temperature": 0, "gpu_memory_temperature": 58, "gpu_gfx_activity": 97,
    "gpu_umc_activity": 43, "gpu_total_vram": 206158, "gpu_used_vram": 185_000, "gpu_free_vram": 21_158,
    "gpu_ecc_correct_total": 3, "gpu_ecc_uncorrect_total": 0, "gpu_vram_max_bandwidth": 5300,
    "gpu_violation_ppt_residency_percentage": 12, "gpu_violation_socket_thermal_residency_percentage": 0,
    "gpu_violation_hbm_thermal_residency_percentage": 0, "gpu_violation_vr_thermal_residency_percentage": 4,
    "gpu_violation_processor_hot_residency_percentage": 0, "gpu_health": 1,
}  # fmt: skip


def amd_labels(gpu: int = 0, part: int = 0, kind: str = "spx", serial: str = AMD_CARD, model: str = "0x74a1") -> str:
    """Those that are always there."""
    return (
        f'card_model="{model}",container="",deployment_mode="baremetal",gpu_compute_partition_type="{kind}",gpu_id="{gpu}",'
        f'gpu_memory_partition_type="nps1",gpu_partition_id="{part}",hostname="node-7",job_id="",job_partition="",job_user="",'
        f'namespace="",pod="",serial_number="{serial}"'
    )


def amd_page(labels: str, prefix: str = "", **values: float) -> str:
    """One GPU."""
    lines = [f"# TYPE {prefix}gpu_nodes_total gauge", f'{prefix}gpu_nodes_total{{hostname="node-7"}} 1']
    for name, value in {**_AMD_VALUES, **values}.items():
        lines += [f"# TYPE {prefix}{name} gauge", f"{prefix}{name}{{{labels}}} {value}"]
    for number, (kind, megahertz) in enumerate((("system", 2100), ("system", 2064), ("memory", 1300), ("video", 29))):
        lines.append(f'{prefix}gpu_clock{{clock_index="{number}",clock_type="{kind}",{labels}}} {megahertz}')
    for link, kilobytes in enumerate((0, 2.776148269e09, 2.914491813e09)):
        lines.append(f'{prefix}gpu_xgmi_link_rx{{link_index="{link}",{labels}}} {kilobytes}')
    return "\n".join(lines) + "\n"


def amd_cpx(parts: int = 8) -> str:
    """A card in CPX: the sensors on the first part, 0 or nothing on the others."""
    pages = []
    for part in range(parts):
        labels = amd_labels(gpu=part, part=part, kind="cpx")
        if part == 0:
            pages.append(amd_page(labels, gpu_total_vram=206158 / parts, gpu_used_vram=20_000))
        else:
            pages.append(
                f"gpu_package_power{{{labels}}} 0\ngpu_power_usage{{{labels}}} 0\n"
                f"gpu_total_vram{{{labels}}} {206158 / parts}\ngpu_used_vram{{{labels}}} {1000 * part}\n"
            )
    return "".join(pages)


def gaudi_page(gpu: int = 0, memory: int = 128 << 30, **values: float) -> str:
    """One Gaudi 3."""
    labels = (
        f'Serial="AM{gpu:08}",UUID="01P4-HL3090A0-18-U4V193-22-07-{gpu:02}",device="AM{gpu:08}",driver="1.23.0-695",fit="",id="{gpu}",'
        'pod_name="",pod_namespace="",spi=""'
    )
    found = {
        "habanalabs_utilization": 88, "habanalabs_power_mW": 612_000, "habanalabs_power_default_limit_mW": 850_000,
        "habanalabs_temperature_onchip": 61, "habanalabs_temperature_onboard": 48, "habanalabs_clock_soc_mhz": 1600,
        "habanalabs_memory_used_bytes": 100 << 30, "habanalabs_memory_total_bytes": memory, "habanalabs_energy": 123_456,
        "habanalabs_pcie_tx": 5, "habanalabs_pending_rows_state": 0,
    }  # fmt: skip
    return "".join(f"{name}{{{labels}}} {value}\n" for name, value in {**found, **values}.items())


def samples_of_exporter(text: str) -> Samples:
    """The page through the real parser, with the names that the daemon keeps."""
    page = Page(text.encode(), "text/plain; charset=utf-8", 0.0, 0.0)
    return PageParser(WANTED.__contains__).parse(page)
