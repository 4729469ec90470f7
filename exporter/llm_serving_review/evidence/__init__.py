"""What Prometheus says of a week: queries, counters by hour, prices, alerts, gaps."""
