"""`python -m prismask` is the command `prismask`."""

from __future__ import annotations

from prismask.apps.cli.app import main

if __name__ == "__main__":
    main()
