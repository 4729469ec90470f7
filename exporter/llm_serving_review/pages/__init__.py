"""The review as a page (values here, markup in templates/), as CSV files and as Markdown."""
