"""What a user sets about the review: its file, its flags, its schedule."""
