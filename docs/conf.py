"""How the documentation site is made: `make docs`.

Everything comes from the repository and nothing from the network: no fonts, no scripts, no
formulas drawn elsewhere. A few small things are done here besides settings: links that leave
docs/, docstrings as reStructuredText, pages that live elsewhere in the repository, formulas as
MathML, which browsers typeset themselves, the list of names by package, and tutorials that are run
(tutorial_pages.py).
"""

from __future__ import annotations

import importlib
import inspect
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml

from prismask import __version__

sys.path.insert(0, str(Path(__file__).resolve().parent))
import tutorial_pages

if TYPE_CHECKING:
    from sphinx.application import Sphinx

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent

project = "Prismask"
author = "The Prismask authors"
copyright = f"2026, {author}"
release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode", "cyclopts.ext.sphinx"]
exclude_patterns = ["_build", "*.py"]
myst_heading_anchors = 3
myst_enable_extensions = ["dollarmath"]
html_math_renderer = "mathml"
# `name` in our docstrings is code, as in Markdown.
default_role = "literal"
# Two hyphens begin an option; they are no dash.
smartquotes = False

html_theme = "furo"
html_title = f"Prismask {release}"
html_show_copyright = False
html_copy_source = False
html_static_path = ["_static"]
html_css_files = ["prismask.css"]

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
# Short names of ours instead of what they stand for.
autodoc_type_aliases = {
    name: name
    for name in ("Array", "Models", "Offsets", "Progress", "Record", "Scale", "Size", "Wavelengths")
}
toc_object_entries_show_parents = "hide"
python_maximum_signature_line_length = 80

RESULT_PAGES = sorted((ROOT / "results" / "pages").glob("*.md"))
ELSEWHERE = {
    "results": "results/README.md",
    "security": "SECURITY.md",
    "contributing": "CONTRIBUTING.md",
    "changelog": "CHANGELOG.md",
    **{f"results/{page.stem}": f"results/pages/{page.name}" for page in RESULT_PAGES},
}
"""Pages that people find elsewhere in the repository: the page here only points there, and the
site shows the text itself."""

_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    tutorial_pages.register(app)
    app.add_html_math_renderer("mathml", (inline_formula, None), (block_formula, None))
    app.connect("source-read", read_page)
    app.connect("autodoc-process-docstring", tidy_docstring)
    app.connect("autodoc-process-signature", tidy_signature)


def read_page(app: Sphinx, page: str, source: list[str]) -> None:
    """The text of a page, with links that work on the site as they do in the repository."""
    home = DOCS / Path(page).parent
    if page in ELSEWHERE:
        origin = ROOT / ELSEWHERE[page]
        app.env.note_dependency(str(origin))
        source[0] = origin.read_text(encoding="utf-8")
        folder = origin.parent
    elif page == "packages":
        source[0] += packages_page((DOCS / "api.md").read_text(encoding="utf-8"))
        folder = home
    else:
        folder = home
    source[0] = _LINK.sub(lambda link: relink(link, folder, home), source[0])


def relink(link: re.Match[str], folder: Path, home: Path) -> str:
    """A link written in `folder`, for a page in `home`.

    Pages are linked as pages; other files of the repository are copied into the site and linked
    there; a folder cannot be, so its name stays as code.
    """
    picture, text, path, anchor = link[1], link[2], link[3], link[4] or ""
    if re.match(r"[a-z]+:|/", path):
        return link[0]
    target = Path(os.path.normpath(folder / path))
    inside = target.relative_to(ROOT).as_posix()
    for page, origin in ELSEWHERE.items():
        if inside == origin:
            target = DOCS / f"{page}.md"
    if target.is_dir():
        return f"`{inside}`" if text.strip("/") in inside else f"{text} (`{inside}`)"
    path = os.path.relpath(target, home)
    if picture or target.is_relative_to(DOCS):
        return f"{picture}[{text}]({path}{anchor})"
    return f"{{download}}`{' '.join(text.split())} <{path}>`"


def inline_formula(writer: Any, node: nodes.math) -> None:
    """A formula within a sentence."""
    writer.body.append(tex2mathml(node.astext()))
    raise nodes.SkipNode


def block_formula(writer: Any, node: nodes.math_block) -> None:
    """A formula on a line of its own."""
    writer.body.append(f'<div class="formula">{tex2mathml(node.astext(), as_block=True)}</div>')
    raise nodes.SkipNode


PACKAGES = (
    "scenes",
    "optics",
    "models",
    "solvers",
    "training",
    "inference",
    "evaluation",
    "parallel",
    "adapters",
)


def packages_page(api: str) -> str:
    """The public names of every package: a line each, and in full what the page of Python lacks."""
    described = {_found(name) for name in re.findall(r"^\.\. auto\w+:: (\S+)", api, re.MULTILINE)}
    parts = []
    for package in PACKAGES:
        module = importlib.import_module(f"prismask.{package}")
        about = (inspect.getdoc(module) or "").partition("\n")[0]
        parts += [f"## prismask.{package}", about, "| name | what |\n|---|---|"]
        rest = []
        for name in module.__all__:
            thing = getattr(module, name)
            line = (inspect.getdoc(thing) or "").partition("\n")[0] if callable(thing) else ""
            parts[-1] += f"\n| `{name}` | {line.replace('|', '/')} |"
            if callable(thing) and id(thing) not in described:
                kind = "class" if inspect.isclass(thing) else "function"
                rest.append(f".. auto{kind}:: prismask.{package}.{name}")
        if rest:
            parts.append("```{eval-rst}\n" + "\n".join(rest) + "\n```")
    return "\n" + "\n\n".join(parts) + "\n"


def _found(name: str) -> int:
    """Which object a dotted name stands for."""
    home, _, last = name.rpartition(".")
    try:
        return id(getattr(importlib.import_module(home), last))
    except (ImportError, AttributeError):
        return 0


def tidy_docstring(
    app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]
) -> None:
    """Our docstrings are plain text; what its indentation means, in reStructuredText.

    `name: what it is`, with further lines indented, becomes an entry of a definition list; an
    indented block after an empty line, an equation or an example, becomes a literal block.
    """
    tidy: list[str] = []
    in_entry = in_block = False
    for line in lines:
        entry = re.match(r"([a-z_][\w, *]*): (\S.*)", line)
        after_blank = not tidy or not tidy[-1].strip()
        if entry and (after_blank or in_entry):
            tidy += ["", f"``{entry[1]}``", f"    {entry[2]}"]
            in_entry, in_block = True, False
            continue
        if line.startswith("    ") and after_blank and not in_block and not in_entry:
            tidy += ["::", ""]
            in_block = True
        elif line.strip() and not line.startswith(" "):
            # An entry may go on without indentation.
            if in_entry and not after_blank:
                line = f"    {line}"
            else:
                in_entry = False
            in_block = False
        elif not line.strip() and in_entry:
            in_entry = False
        tidy.append(line)
    lines[:] = [*tidy, ""]


def tidy_signature(
    app: Sphinx, what: str, name: str, thing: Any, options: Any, signature: str, returns: str
) -> tuple[str | None, str | None]:
    """A short name of ours beside `None` is that name, not what autodoc puts in its place."""
    plain = [
        text and re.sub(r"TypeAliasForwardRef\('(\w+)'\)", r"\1", text)
        for text in (signature, returns)
    ]
    return plain[0], plain[1]
