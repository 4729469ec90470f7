"""What is known about models and GPUs: data files with sources, formulas over a model's config, and the one reader of files."""
