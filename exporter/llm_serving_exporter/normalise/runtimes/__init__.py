"""One module a runtime; each defines `RUNTIME`. `normalise/registry.py` lists them."""
