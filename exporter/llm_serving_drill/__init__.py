"""Command `drill`: a real node loss, watched or triggered, measured through Prometheus' API alone and judged.

plan (forecast -> may it begin) -> runner (baseline, loss, course) -> sums (what was measured) -> verdict -> report. The pure parts know
no clock and no socket; `api`, `commands` and `runner` do the rest.
"""
