"""What follows from the evidence of a week."""
