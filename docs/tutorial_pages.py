"""Tutorials are Python scripts that the site runs: text, code, and what the code printed and drew.

A script in docs/tutorials is cut into cells, as editors and Jupyter (through jupytext) cut it too:

    # %% [markdown]
    # Text of the page.
    # %%
    print("code, shown with what it prints; the value of its last line is shown as well")
    # %% check
    assert "code that is run and not shown: what the text claims"

`make docs` runs every script that has changed, or whose package has, in a process of its own and in
an empty folder. A script that fails stops the build; `python docs/tutorial_pages.py SCRIPT` runs
one.
"""

from __future__ import annotations

import ast
import contextlib
import io
import os
import re
import subprocess
import sys
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from myst_parser.parsers.sphinx_ import MystParser

if TYPE_CHECKING:
    from docutils import nodes
    from sphinx.application import Sphinx

DOCS = Path(__file__).resolve().parent
SCRIPTS = sorted((DOCS / "tutorials").glob("*.py"))
MADE = DOCS / "_build" / "tutorials"
"""Where the pages and their pictures lie; Sphinx finds pictures only below docs/."""
DOTS_PER_INCH = 110


@dataclass(frozen=True)
class Cell:
    """A piece of a script."""

    kind: str
    """`text`, `code` or `check`."""
    source: str
    line: int
    """Lines of the script before it."""


def cells_of(script: str) -> list[Cell]:
    """The cells of a script; what stands before the first mark is for readers of the code."""
    marks = list(re.finditer(r"^# %%(.*)\n", script, re.MULTILINE))
    ends = [mark.start() for mark in marks[1:]] + [len(script)]
    cells = []
    for mark, end in zip(marks, ends, strict=True):
        word = mark[1].strip()
        kind = {"[markdown]": "text", "": "code", "check": "check"}[word]
        source = script[mark.end() : end]
        if kind == "text":
            source = re.sub(r"^# ?", "", source, flags=re.MULTILINE)
        cells.append(Cell(kind, source.strip("\n"), script[: mark.end()].count("\n")))
    return cells


def page_of(script: Path, pictures: Path) -> str:
    """Run a script here and now: its page in Markdown; its pictures go to a folder."""
    names: dict[str, Any] = {"__name__": "__main__"}
    parts: list[str] = []
    count = 0
    for cell in cells_of(script.read_text(encoding="utf-8")):
        if cell.kind == "text":
            parts.append(cell.source)
            continue
        said, value = _run(cell, script, names)
        if cell.kind == "check":
            continue
        parts.append(f"```python\n{cell.source}\n```")
        if said.strip():
            parts.append(f"```text\n{said.rstrip()}\n```")
        if hasattr(value, "_repr_html_"):
            parts.append(f"```{{raw}} html\n{value._repr_html_()}\n```")
        elif value is not None and not _is_drawing(value):
            parts.append(f"```text\n{value!r}\n```")
        for drawn in _pictures():
            count += 1
            name = f"{script.stem}-{count}.png"
            (pictures / name).write_bytes(drawn)
            parts.append(f"![Drawn by the code above](/_build/tutorials/{name})")
    link = f"[{script.name}](./{script.name})"
    parts.append(f"---\n\nThis page is {link}, run when the site was made.")
    return "\n\n".join(parts) + "\n"


def _run(cell: Cell, script: Path, names: dict[str, Any]) -> tuple[str, Any]:
    """What a cell prints, and the value of its last line if that is an expression."""
    tree = ast.parse("\n" * cell.line + cell.source, str(script))
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    from prismask import PrismaskWarning

    held, value = io.StringIO(), None

    def show(message: Any, category: type[Warning], *_: Any) -> None:
        held.write(f"{category.__name__}: {message}\n")

    with contextlib.redirect_stdout(held), warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("always", PrismaskWarning)
        warnings.showwarning = show
        exec(compile(tree, str(script), "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), str(script), "eval"), names)
    return held.getvalue(), value


def _is_drawing(value: Any) -> bool:
    several = value if isinstance(value, list | tuple) else [value]
    return all(type(one).__module__.startswith("matplotlib") for one in several)


def _pictures() -> list[bytes]:
    """What was drawn since the last cell, as PNG."""
    import matplotlib.pyplot as plt

    drawn = []
    for number in plt.get_fignums():
        held = io.BytesIO()
        plt.figure(number).savefig(held, format="png", dpi=DOTS_PER_INCH, bbox_inches="tight")
        drawn.append(held.getvalue())
    plt.close("all")
    return drawn


# --- Sphinx -------------------------------------------------------------------------------------


class TutorialParser(MystParser):
    """A script of docs/tutorials, as the page that running it has made."""

    supported = ("tutorial",)

    def parse(self, inputstring: str, document: nodes.document) -> None:
        """Parse the page instead of the script."""
        script = Path(document.settings.env.doc2path(document.settings.env.docname))
        super().parse((MADE / f"{script.stem}.md").read_text(encoding="utf-8"), document)


def run_changed(app: Sphinx) -> None:
    """Run every script whose page is older than it or than the package."""
    MADE.mkdir(parents=True, exist_ok=True)
    sources = (DOCS.parent / "src" / "prismask").rglob("*.py")
    newest = max(path.stat().st_mtime for path in (Path(__file__), *sources))
    for script in SCRIPTS:
        page = MADE / f"{script.stem}.md"
        if page.exists() and page.stat().st_mtime > max(newest, script.stat().st_mtime):
            continue
        done = subprocess.run(
            [sys.executable, __file__, str(script)], capture_output=True, text=True
        )
        if done.returncode:
            raise RuntimeError(f"{script} failed:\n{done.stderr}")


def register(app: Sphinx) -> None:
    """Called by conf.py."""
    app.add_source_suffix(".py", "tutorial")
    app.add_source_parser(TutorialParser)
    app.connect("builder-inited", run_changed)


def main(script: Path) -> None:
    """Run one script in an empty folder and write its page."""
    import matplotlib

    matplotlib.use("Agg")
    script = script.resolve()
    MADE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        page = page_of(script, MADE)
        os.chdir(DOCS)
    (MADE / f"{script.stem}.md").write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
