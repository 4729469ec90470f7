"""Which GPUs there are, what they can do, and which target each of them works for."""
