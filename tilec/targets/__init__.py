"""One table per architecture. Data, not code."""
