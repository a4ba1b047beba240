"""`python -m tilec`."""

from __future__ import annotations

from tilec.cli import main

if __name__ == "__main__":
    main()
