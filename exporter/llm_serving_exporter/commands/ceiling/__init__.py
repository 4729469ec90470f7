"""Command `ceiling`: arguments -> question -> answer -> table or JSON."""
