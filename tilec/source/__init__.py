"""Program text, source spans and diagnostics. Imports nothing else of tilec."""
