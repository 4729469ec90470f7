"""The daemon: its jobs, its latest readings, and the web server beside them."""
