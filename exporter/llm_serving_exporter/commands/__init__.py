"""Commands that answer at once: `once`, `ceiling`, `page-test`."""
