"""The abstract syntax of Tile and the parser that builds it."""
