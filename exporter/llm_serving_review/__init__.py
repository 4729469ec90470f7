"""The weekly cost review: a week of Prometheus' series -> one page, two CSV files and a Markdown summary (docs/report.md).

Four rooms, in the order in which a review is made: `settings` (what a user sets), `evidence` (what Prometheus says of the week), `figures`
(what follows from it, pure arithmetic), `pages` (how it is shown). `command` runs them in turn, `deliver` sends the result.
"""
