"""Other services' HTTP APIs, as the commands that people call ask them."""
