"""The weekly cost review: a week of Prometheus' series -> one page, a CSV and a Markdown summary (docs/report.md).

In order: `week` (which hours), `names` (what is asked for), `fetch` (evidence), `sums` and its neighbours (arithmetic), `review` (what is
said), `page`, `table` and `summary` (how).
"""
