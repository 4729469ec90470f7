"""What figures are made with: the fact table and its views, and sums with the same digits on every Python, in whatever order they are taken."""
