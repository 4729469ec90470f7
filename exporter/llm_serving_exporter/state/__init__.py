"""Files that outlive a process."""
