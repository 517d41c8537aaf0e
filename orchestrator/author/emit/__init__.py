"""Write an operator's config and runner: ``draft``."""
