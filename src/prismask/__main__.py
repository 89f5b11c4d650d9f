"""`python -m prismask` is the command `prismask`."""

from __future__ import annotations

import sys

try:
    from prismask.apps.cli.app import main
except ModuleNotFoundError as error:
    if error.name not in ("cyclopts", "rich", "attrs", "attr", "docstring_parser"):
        raise
    sys.stderr.write(
        f"prismask: the command line needs {error.name}, which is not installed. It is pure: "
        "`pip install cyclopts filelock`, or carry it along from another machine with "
        "`pip install --target parts cyclopts filelock` and PYTHONPATH=parts.\n"
    )
    sys.exit(2)

if __name__ == "__main__":
    main()
