"""From abstract syntax and one candidate to Tile IR: names, extents, dtypes, presence."""
