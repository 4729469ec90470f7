"""How any settings file is read: text to typed values, with every fault named at once."""
