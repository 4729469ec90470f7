"""The review as a page, CSV and Markdown."""
