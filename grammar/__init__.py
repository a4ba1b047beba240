"""The grammar of Tile (`tile.lark`) and, in an installed package, its parse tables."""
