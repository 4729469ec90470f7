"""What figures are made with: the fact table with its views, and sums that have the same digits on every Python and in any order."""
