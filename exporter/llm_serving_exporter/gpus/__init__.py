"""Which GPUs there are, what they show, and which target each of them works for.

The exporter runs where NVML is missing too: whatever cannot be read is None with a reason.
"""
