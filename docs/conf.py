"""How the documentation site is made: `make docs`.

Everything comes from the repository and nothing from the network: no fonts, no scripts, no
formulas drawn elsewhere. Three small things are done here besides settings: links that leave
docs/, docstrings as reStructuredText, and pages that live elsewhere in the repository.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prismask import __version__

if TYPE_CHECKING:
    from sphinx.application import Sphinx

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent

project = "Prismask"
author = "The Prismask authors"
copyright = f"2026, {author}"
release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode", "cyclopts.ext.sphinx"]
exclude_patterns = ["_build"]
myst_heading_anchors = 3
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
    else:
        folder = home
    source[0] = _LINK.sub(lambda link: relink(link, folder, home), source[0])


def relink(link: re.Match[str], folder: Path, home: Path) -> str:
    """A link written in `folder`, for a page in `home`.

    Pages are linked as pages; other files of the repository are copied into the site and linked
    there; a folder cannot be, so its name stays as code.
    """
    picture, text, path, anchor = link[1], link[2], link[3], link[4] or ""
    if re.match(r"[a-z]+:", path):
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
