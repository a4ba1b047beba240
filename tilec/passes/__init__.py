"""From Tile IR to Kernel IR, one idea a file; the order is in `pipeline.py`."""
