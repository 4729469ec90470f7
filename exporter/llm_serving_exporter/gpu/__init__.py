"""NVML -> device readings.

`nvml.NvmlSource` is the entry: one `read()` a pass. Below it `session` holds an initialised NVML, `inventory` and `mig`
say what a GPU is, `reading` and `fields` what it shows now, `gpm` its bandwidth and activity, `events` its XIDs. Beside
them `processes` and `vendor` answer from /proc and /sys alone.
"""
