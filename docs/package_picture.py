"""The picture of packages and their imports in CONTRIBUTING.md, drawn from the code itself.

    python docs/package_picture.py          # draws it anew

An edge is there if a module imports the other package when it runs; imports for type checkers
alone, and those of `__main__`, do not count. Needs grimp, which import-linter brings.
"""

from __future__ import annotations

import re
from pathlib import Path

import grimp

CONTRIBUTING = Path(__file__).resolve().parents[1] / "CONTRIBUTING.md"
ROOMS = (
    "apps", "adapters", "evaluation", "inference", "training", "solvers", "models", "optics",
    "scenes", "parallel",
)  # fmt: skip
_PICTURE = re.compile(r"(?<=<!-- packages -->\n```text\n).*?(?=```\n)", re.DOTALL)


def picture() -> str:
    """One line per package, right to left: what is in it, and which packages it imports."""
    # Its cache still knows packages that have become modules.
    graph = grimp.build_graph("prismask", exclude_type_checking_imports=True, cache_dir=None)
    modules = [name for name in graph.modules if not name.endswith("__main__")]
    lines = []
    for room in ROOMS:
        home = f"prismask.{room}"
        inner = sorted(
            name.removeprefix(f"{home}.")
            for name in modules
            if name.count(".") == 2 and name.startswith(f"{home}.") and graph.find_children(name)
        )
        imported = {
            target.split(".")[1]
            for name in modules
            if name == home or name.startswith(f"{home}.")
            for target in graph.find_modules_directly_imported_by(name)
            if target.startswith("prismask.")
        }
        edges = " ".join(other for other in ROOMS if other in imported - {room})
        folders = f"  [{' '.join(inner)}]" if inner else ""
        lines.append(f"{room:<11}→ {edges or 'nothing'}{folders}")
    return "\n".join(lines) + "\n"


def drawn() -> str:
    """The picture that stands in CONTRIBUTING.md."""
    found = _PICTURE.search(CONTRIBUTING.read_text(encoding="utf-8"))
    return found[0] if found else ""


if __name__ == "__main__":
    text = CONTRIBUTING.read_text(encoding="utf-8")
    CONTRIBUTING.write_text(_PICTURE.sub(lambda _: picture(), text), encoding="utf-8")
