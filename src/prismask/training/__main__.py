"""`python -m prismask.training CONFIG.toml`, and under torchrun on several devices."""

from prismask.apps.cli.train import main

if __name__ == "__main__":
    raise SystemExit(main())
