"""Command `drill`: a real node loss, watched or triggered, measured through Prometheus' API alone and judged.

plan (forecast -> may it begin) -> runner (baseline, loss, course) -> verdict (what was measured, and what of it) -> report. These know no
clock and no socket but for `runner`, which asks `observer`.
"""
