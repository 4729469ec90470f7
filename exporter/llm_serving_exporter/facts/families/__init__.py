"""Model families as rows, by module; `facts.shapes` says how a row reads."""
