"""What the passes know about sizes: the facts of the analysis."""

from tilec.analysis.facts import Facts

__all__ = ["Facts"]
