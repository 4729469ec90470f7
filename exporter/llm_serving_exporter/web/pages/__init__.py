"""The pages that the web server shows to people."""
