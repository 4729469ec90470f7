"""What figures are made with: sums with the same digits on every Python and in whatever order they are taken."""
