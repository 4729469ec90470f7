"""Bills of clouds: how they are read, and how they compare with what was metered."""
