"""How any settings file and command line is read, and the exporter's own: file, flags and environment -> one frozen Config.

`load.load` makes the `config.Config`, `sources.add_flags` the flags, `config.effective` the form for people.
"""
