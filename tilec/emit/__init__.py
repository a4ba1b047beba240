"""Kernel IR and launch plans to text: contexts for the templates, nothing decided here."""
