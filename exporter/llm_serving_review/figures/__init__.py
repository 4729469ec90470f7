"""What follows from the evidence of a week: totals, changes, findings, actions. Pure arithmetic."""
