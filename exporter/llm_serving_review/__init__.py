"""The weekly cost review: a week of Prometheus' series -> one page, two CSV files and a Markdown summary (docs/report.md).

Rooms, in the order in which a review is made: `settings` (what a user sets), `evidence` (what Prometheus says of the week), `figures` (what
follows from it, pure arithmetic over `tables`' sums by key and hour), `bills` (what clouds billed, against it), `pages` (how it is shown).
`command` runs them in turn, `deliver` sends the result. Of the exporter they know the catalogue, `model`, `settings`, `clients`, `render`.
"""
