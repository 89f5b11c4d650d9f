"""`python -m prismask.evaluation evaluate|stress …`, on machines with torch and SciPy alone."""

from prismask.apps.cli.bare import main

if __name__ == "__main__":
    raise SystemExit(main())
