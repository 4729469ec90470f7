"""Grafana's JSON of a dashboard. Only this package knows grafanalib and Grafana's JSON.

`document` lays the panels on the grid and hands each to grafanalib's class for it; `changes` lists, one table a visualization, what has to
be added to, replaced in and removed from the JSON that grafanalib 0.7.1 writes, to reach schema 42; `fields` writes the parts of a panel
that grafanalib has no class for.
"""
