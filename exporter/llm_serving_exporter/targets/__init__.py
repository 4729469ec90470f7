"""One target, tick by tick: its page, its side endpoints, its facts."""
