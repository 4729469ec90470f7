"""What Prometheus says of a week."""
