"""Pages of dcgm-exporter for tests: names, labels and number formats as versions of it write them, a few lines each."""

from llm_serving_exporter.fetch.page import PageParser
from llm_serving_exporter.gpus.dcgm import WANTED
from llm_serving_exporter.model.sample import Page, Samples

T4 = "GPU-6d5c0ac5-74d7-3130-46f1-e93ed57f469a"
A100 = "GPU-34319582-d595-d1c7-d1d2-179bcfa61660"
A30 = "GPU-63bc0b91-2265-1b94-831c-15c41fe92675"
ADA = "GPU-fc60126e-514d-3522-2828-c5daa8e99d85"

_T4 = (
    f'gpu="0",UUID="{T4}",pci_bus_id="00000000:37:00.0",device="nvidia0",modelName="Tesla T4",'
    'Hostname="node-1",DCGM_FI_DRIVER_VERSION="590.48.01"'
)
# 4.x, the default counters, one GPU without pods
PLAIN = f"""\
# HELP DCGM_FI_DEV_MEMORY_TEMP Memory temperature (in C).
# TYPE DCGM_FI_DEV_MEMORY_TEMP gauge
DCGM_FI_DEV_MEMORY_TEMP{{{_T4}}} 0
# HELP DCGM_FI_DEV_POWER_USAGE Power draw (in W).
# TYPE DCGM_FI_DEV_POWER_USAGE gauge
DCGM_FI_DEV_POWER_USAGE{{{_T4}}} 68.244000
# HELP DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION Total energy consumption since boot (in mJ).
# TYPE DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION counter
DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{{{_T4}}} 15152422938
DCGM_FI_DEV_GPU_UTIL{{{_T4}}} 91
DCGM_FI_DEV_MEM_COPY_UTIL{{{_T4}}} 73
DCGM_FI_DEV_FB_FREE{{{_T4}}} 9791
DCGM_FI_DEV_FB_USED{{{_T4}}} 5120
# HELP DCGM_FI_PROF_GR_ENGINE_ACTIVE Ratio of time the graphics engine is active.
# TYPE DCGM_FI_PROF_GR_ENGINE_ACTIVE gauge
DCGM_FI_PROF_GR_ENGINE_ACTIVE{{{_T4}}} 0.156205
DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{{{_T4}}} 0.005822
DCGM_FI_PROF_DRAM_ACTIVE{{{_T4}}} 0.092781
DCGM_FI_PROF_PCIE_TX_BYTES{{{_T4}}} 4791810
"""

_GPU = f'gpu="0",UUID="{A100}",device="nvidia0",Hostname="ub20-a100-k8s"'
_GI = f'gpu="0",UUID="{A100}",device="nvidia0",GPU_I_PROFILE="1g.5gb",GPU_I_ID="13",Hostname="ub20-a100-k8s"'
# NVIDIA's own example of MIG (2.1.8-2.4.0-rc.2): the GPU as a whole, then its instances; no pci_bus_id, no modelName
MIG = f"""\
DCGM_FI_DEV_POWER_USAGE{{{_GPU}}} 409.692000
DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{{{_GPU}}} 319159391
DCGM_FI_DEV_FB_USED{{{_GPU}}} 4845
DCGM_FI_PROF_GR_ENGINE_ACTIVE{{{_GPU}}} 0.995630
DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{{{_GPU}}} 0.929260
DCGM_FI_PROF_DRAM_ACTIVE{{{_GPU}}} 0.690789

DCGM_FI_DEV_XID_ERRORS{{{_GI}}} 0
DCGM_FI_PROF_GR_ENGINE_ACTIVE{{{_GI}}} 0.995687
DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{{{_GI}}} 0.930433
DCGM_FI_PROF_DRAM_ACTIVE{{{_GI}}} 0.800339
"""

_ADA = f'gpu="1",UUID="{ADA}",pci_bus_id="00000000:B1:00.0",device="nvidia1",modelName="NVIDIA RTX 2000 Ada Generation",hostname="node-2"'
_A30 = (
    f'gpu="2",UUID="{A30}",pci_bus_id="00000000:CA:00.0",device="nvidia2",modelName="NVIDIA A30",GPU_I_PROFILE="1g.6gb",GPU_I_ID="3",'
    'hostname="node-2",container="triton-server",namespace="default",pod="triton-server-f7cb5d77-95xcf"'
)
# after 4.5.3-4.8.2: `hostname`; a node of two models, of which one has no profiling; fields under the names of DCGM 4.6.0
MIXED = f"""\
DCGM_FI_DEV_FB_USED{{{_ADA}}} 4600
DCGM_FI_DEV_FB_USED{{{_A30}}} 3600
DCGM_FI_DEV_BOARD_POWER_WATTS{{{_ADA}}} 61.300000
DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO{{{_A30}}} 0.950000
DCGM_FI_PROF_SM_UTIL_RATIO{{{_A30}}} 0.810000
DCGM_FI_PROF_TENSOR_UTIL_RATIO{{{_A30}}} 0.250000
DCGM_FI_PROF_DRAM_UTIL_RATIO{{{_A30}}} 0.640000
"""

# 1.x-compatibility-metrics.csv with --use-old-namespace, labels as the README writes them
OLD_NAMESPACE = f"""\
dcgm_power_usage{{gpu="0", uuid="{T4}"}} 10.101
dcgm_total_energy_consumption{{gpu="0", uuid="{T4}"}} 22500
dcgm_fb_used{{gpu="0", uuid="{T4}"}} 11
dcgm_fi_prof_gr_engine_active{{gpu="0", uuid="{T4}"}} 0.5
dcgm_fi_prof_pipe_tensor_active{{gpu="0", uuid="{T4}"}} 0.25
dcgm_fi_prof_dram_active{{gpu="0", uuid="{T4}"}} 0.125
"""


def samples_of(text: str) -> Samples:
    """The page through the real parser, with the names that the daemon keeps."""
    page = Page(text.encode(), "text/plain; charset=utf-8", 0.0, 0.0)
    return PageParser(WANTED.__contains__).parse(page)
