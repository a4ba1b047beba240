"""The library of Tile that ships with tilec, itself written in Tile."""
