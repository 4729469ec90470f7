"""File, flags and environment -> one frozen Config.

`load.load` makes the `types.Config`, `options.add_flags` the flags, `effective.effective` the form for people.
"""
