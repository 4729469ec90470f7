"""How any settings file is read: text to typed values, with every fault reported at once.

`keys` declares the keys, `kinds` the single values; `document` makes a tree of a YAML or JSON file, `reading` takes it apart.
"""
