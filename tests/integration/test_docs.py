"""The documentation is true: the site builds, its examples run, its commands parse.

Every fenced block of a page is done in order, in a folder of its own with a small simulated
camera's files in it. Python is executed, `prismask` lines are parsed and, on the pages named in
`RUN`, run. An HTML comment before a block says what else to do with it: `<!-- not run: reason -->`
parses commands only, `<!-- file: name -->` writes the block to a file first.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.ndimage import shift

import prismask
from prismask import CASSI, Mask, Measurement, save
from prismask.apps.cli.app import app, run
from prismask.models.registry import create_model
from prismask.models.weights import save_weights, trained_with
from prismask.optics.fabricate import fabricate_mask
from prismask.optics.simulate import Gaussian, simulate
from prismask.scenes.synthetic import demo_scene
from prismask.training.config import read_config

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(
    path for path in (ROOT / "README.md", *DOCS.rglob("*.md")) if "_build" not in path.parts
)
RUN = {"start.md", "camera.md", "evaluate.md", "choose.md"}
"""Pages whose commands are run; of the others they are parsed only."""
SPHINX_BUILD = """
import sys
from sphinx.cmd.build import main
sys.argv[0] = "sphinx-build"
sys.exit(main(sys.argv[1:]))
"""

pytestmark = pytest.mark.slow


# --- the site -----------------------------------------------------------------------------------


def test_the_site(tmp_path: Path) -> None:
    """One test, because a site is built in seconds and every worker would build its own."""
    pytest.importorskip("sphinx", reason="Sphinx is not installed (extra: docs)")
    pytest.importorskip("myst_parser", reason="myst-parser is not installed (extra: docs)")
    pytest.importorskip("furo", reason="furo is not installed (extra: docs)")
    site = tmp_path / "html"
    # A process of its own: Sphinx changes much of the interpreter it runs in.
    options = ["-W", "--keep-going", "-q", "-b", "html", "-d", str(tmp_path / "cache")]
    command = [sys.executable, "-c", SPHINX_BUILD, *options, str(DOCS), str(site)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    every_page_is_there(site)
    every_tutorial_was_run(site)
    formulas_are_typeset(site)
    every_name_has_its_package(site)
    every_public_name_is_described(site)
    every_command_is_described(site)
    nothing_is_loaded_from_elsewhere(site)
    links_into_the_results_arrive(site)


def every_page_is_there(site: Path) -> None:
    for page in DOCS.rglob("*.md"):
        if "_build" not in page.parts:
            assert (site / page.relative_to(DOCS).with_suffix(".html")).is_file()


def every_tutorial_was_run(site: Path) -> None:
    """A script that fails stops the build; what came out of the others is on their pages."""
    scripts = sorted((DOCS / "tutorials").glob("*.py"))
    assert len(scripts) >= 6
    for script in scripts:
        text = (site / "tutorials" / f"{script.stem}.html").read_text(encoding="utf-8")
        pictures = re.findall(rf'src="\.\./_images/({script.stem}-\d+\.png)"', text)
        assert pictures, script
        assert all((site / "_images" / name).stat().st_size > 5000 for name in pictures)
        assert "assert" not in text, "what is checked is not shown"


def formulas_are_typeset(site: Path) -> None:
    text = (site / "method.html").read_text(encoding="utf-8")
    assert text.count("<math") > 40
    assert not re.search(r"\\(frac|lambda|hat)", text), "LaTeX that nobody typeset"


def every_name_has_its_package(site: Path) -> None:
    text = (site / "packages.html").read_text(encoding="utf-8")
    for line in (ROOT / "tests" / "api_surface.txt").read_text().splitlines():
        found = re.match(r"prismask\.([a-z]+)\.([A-Za-z_]+)(?:\(|$)", line)
        if found:
            assert f"prismask.{found[1]}" in text
            assert f">{found[2]}</span>" in text, line


def every_public_name_is_described(site: Path) -> None:
    text = (site / "api.html").read_text(encoding="utf-8")
    missing = [name for name in prismask.__all__ if f'id="prismask.{name}"' not in text]
    assert missing == []


def every_command_is_described(site: Path) -> None:
    text = (site / "cli.html").read_text(encoding="utf-8")
    usages = re.sub(r"<[^>]+>", "", "".join(re.findall(r"<pre>.*?</pre>", text, re.DOTALL)))
    assert "prismask reconstruct --mask PATH... --out PATH [OPTIONS]" in usages
    for name in app.resolved_commands():
        if not name.startswith("-"):
            assert f'id="cyclopts-prismask-{name}"' in text, name
    for option in ("--check-mask", "--polynomial", "--allow-overlap", "--keep-minutes"):
        assert option in text


class _Loads(HTMLParser):
    """What a page makes the browser fetch; a link that a reader may click is not fetched."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("src", "srcset", "data", "poster") or (name == "href" and tag == "link"):
                self.fetched.append(value or "")


def nothing_is_loaded_from_elsewhere(site: Path) -> None:
    pages = [page for page in site.rglob("*.html") if "_downloads" not in page.parts]
    assert len(pages) > 15
    for page in pages:
        loads = _Loads()
        loads.feed(page.read_text(encoding="utf-8"))
        foreign = [where for where in loads.fetched if re.match(r"(https?:)?//", where)]
        assert foreign == [], page
    for style in (site / "_static").rglob("*.css"):
        found = re.findall(r"(?:url\(|@import)\s*['\"]?((?:https?:)?//[^)'\"]*)", style.read_text())
        assert found == [], style


def links_into_the_results_arrive(site: Path) -> None:
    pages = [page for page in site.rglob("*.html") if "_downloads" not in page.parts]
    found = 0
    for page in pages:
        text = page.read_text(encoding="utf-8")
        for path, anchor in re.findall(r'href="([^":#]+\.html)#([^"]+)"', text):
            target = (page.parent / path).resolve()
            if target.name == "results.html" or target.parent == (site / "results").resolve():
                found += 1
                assert f'id="{anchor}"' in target.read_text(encoding="utf-8"), (page, anchor)
    assert found > 10


# --- the examples -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    language: str
    text: str
    mark: str
    """What the comment before it says."""
    line: int

    @property
    def commands(self) -> list[list[str]]:
        """The `prismask` lines, as words."""
        joined = self.text.replace("\\\n", " ")
        words = [shlex.split(line, comments=True) for line in joined.splitlines()]
        return [line[1:] for line in words if line[:1] == ["prismask"]]


_BLOCK = re.compile(r"^(?:<!-- (.*?) -->\n)?```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(found[2], found[3], found[1] or "", text[: found.start(3)].count("\n"))
        for found in _BLOCK.finditer(text)
    ]


def _name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


WITH_PYTHON = [p for p in PAGES if any(b.language == "python" for b in blocks_of(p))]
WITH_COMMANDS = [p for p in PAGES if any(b.commands for b in blocks_of(p) if b.language == "bash")]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that examples speak of."""
    folder = tmp_path_factory.mktemp("lab")
    camera, size = CASSI.from_step(), (128, 128)  # in smaller frames no mask is looked for
    mask = Mask(fabricate_mask(size, torch.Generator().manual_seed(0)).numpy())
    truth = demo_scene(size)
    shot = Measurement(simulate(truth, mask, camera, Gaussian(0.003)).values)
    save(mask, folder / "mask.mat")
    save(truth, folder / "truth.nc")
    save(shot, folder / "snapshot.mat")
    (folder / "shots").mkdir()
    for name in ("a", "b"):
        save(shot, folder / "shots" / f"{name}.mat")
    shutil.copytree(ROOT / "configs", folder / "configs")
    (folder / "mine.toml").write_text('name = "mine"\nbase = "configs/smoke.toml"\n')
    return folder


@pytest.fixture
def here(lab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "lab"
    shutil.copytree(lab, folder)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture(autouse=True)
def _registered_as_before() -> Iterator[None]:
    """A backbone that an example registers is gone again after it."""
    from prismask.models import registry

    yield
    for name in registry._BACKBONES.keys() - registry._HOMES.keys():
        del registry._BACKBONES[name]


def test_the_pages_are_found() -> None:
    assert len(WITH_PYTHON) >= 9
    assert len(WITH_COMMANDS) >= 9


@pytest.mark.parametrize("page", sorted({*WITH_PYTHON, *WITH_COMMANDS}), ids=_name)
def test_the_examples(page: Path, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "__example__", type(sys)("__example__"))
    names = vars(sys.modules["__example__"])
    run_commands = page.name in RUN
    for block in blocks_of(page):
        kind, _, what = block.mark.partition(": ")
        assert kind in ("", "file", "not run"), f"{page}:{block.line}: unknown mark {block.mark!r}"
        if kind == "file":
            (here / what).write_text(block.text, encoding="utf-8")
        if block.language == "python" and kind != "not run":
            _execute(block, page, names)
        elif block.language == "bash":
            for words in block.commands:
                _parse(words, f"{page}:{block.line}")
                if run_commands and kind != "not run":
                    code, said = _typed(words)
                    assert code == 0, f"{page}:{block.line}: prismask {' '.join(words)}: {said}"


def _execute(block: Block, page: Path, names: dict[str, object]) -> None:
    # Blank lines before it: a traceback then names the line of the page.
    code = compile("\n" * block.line + block.text, str(page), "exec")
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        exec(code, names)


def _parse(words: list[str], where: str) -> None:
    """The app understands the line; a training's configuration is read with its changes."""
    try:
        _, bound, _ = app.parse_args(words, exit_on_error=False, print_error=False)
    except Exception as error:
        raise AssertionError(f"{where}: prismask {' '.join(words)}: {error}") from error
    if words[0] == "train":
        read_config(bound.args[0], bound.kwargs.get("set_") or [])


def _typed(words: list[str]) -> tuple[int, str]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(words)
    return code, out.getvalue() + err.getvalue()


# --- the table of messages ----------------------------------------------------------------------


def _messages() -> list[str]:
    text = (DOCS / "camera.md").read_text(encoding="utf-8").split("## Messages")[1]
    return [row.split("`")[1] for row in text.splitlines() if row.startswith("| `")]


def told_by_wrong_commands(lab: Path) -> list[str]:
    """What commands say that get something wrong; one line each."""
    values = {name: prismask.load(lab / name).values for name in ("mask.mat", "snapshot.mat")}
    mask, shot = values["mask.mat"], values["snapshot.mat"]
    arrays = {
        "small": mask[:48, :48], "raw_mask": mask * 4000, "flipped_mask": mask[::-1],
        "shifted_mask": np.roll(mask, 2, axis=0), "odd": shot[:, :-9],
        "moved_mask": shift(mask, (0.6, 0.5), mode="nearest").clip(0, 1),
        "turned": shot.T, "counts": (shot.clip(0) * 60000).astype(np.int64),
        "clipped": np.minimum(shot * 1.6, 1), "offset": shot + 0.05, "cropped": shot[:, :-10],
        "closed_mask": 0 * mask, "sensor_mask": np.resize(mask, shot.shape),
        "other_mask": fabricate_mask(mask.shape, torch.Generator().manual_seed(9)).numpy(),
    }  # fmt: skip
    for name, array in arrays.items():
        np.save(lab / f"{name}.npy", array)
    np.savez(lab / "two.npz", a=shot, b=shot)
    for bands, step in ((28, 0.9), (24, 0.5), (20, 4.5)):
        size = CASSI.from_step(bands, step).scene_size((shot.shape[0], shot.shape[1]))
        np.save(lab / f"mask_{bands}.npy", np.resize(mask, size))
    wrong = """
        cropped.npy --mask mask.mat --bands 28
        odd.npy --mask mask.mat
        snapshot.mat --mask shifted_mask.npy
        snapshot.mat --mask moved_mask.npy
        snapshot.mat --mask moved_mask.npy --no-align
        snapshot.mat --mask small.npy
        turned.npy --mask mask.mat --bands 28
        snapshot.mat --mask sensor_mask.npy --bands 28
        snapshot.mat --mask raw_mask.npy
        snapshot.mat --mask closed_mask.npy
        counts.npy --mask mask.mat
        two.npz --mask mask.mat
        snapshot.mat --mask mask.mat --polynomial=-60,0.2 --bands 31
        snapshot.mat --mask mask.mat --offsets 0,2,4 --wavelengths 450,500
        snapshot.mat --mask mask.mat --offsets 0,2,4 --step 2
        snapshot.mat --mask mask.mat --level 0.85
        snapshot.mat --mask other_mask.npy
        snapshot.mat --mask flipped_mask.npy
        snapshot.mat --mask other_mask.npy --model untrained.safetensors
        clipped.npy --mask mask.mat
        offset.npy --mask mask.mat
        cropped.npy --mask mask.mat
        snapshot.mat --mask mask_20.npy --bands 20 --step 4.5
        snapshot.mat --mask mask_20.npy --bands 20 --step 4.5 --model untrained.safetensors
        snapshot.mat --mask mask_24.npy --bands 24 --step 0.5
        snapshot.mat --mask mask_28.npy --bands 28 --step 0.9 --model any.safetensors
        snapshot.mat --mask mask.mat --mask-std 0.1 --method gap-tv --iterations 1
    """
    any_camera = create_model("lumen", seed=0, width=8, stages=1, cosines=8)
    save_weights(any_camera, lab / "any.safetensors", trained_with(CASSI.from_step()))
    untrained = create_model("srn", seed=0, width=8, blocks=1)
    save_weights(untrained, lab / "untrained.safetensors", trained_with(CASSI.from_step()))
    told = []
    for line in filter(None, map(str.strip, wrong.splitlines())):
        words = ["reconstruct", *shlex.split(line), "-o", "out.nc", "--overwrite"]
        told += _typed(words)[1].splitlines()
    return told


def test_the_messages_are_real(here: Path) -> None:
    told = told_by_wrong_commands(here)
    messages = _messages()
    assert len(messages) > 15
    for message in messages:
        wanted = re.compile(".+".join(map(re.escape, message.split("…"))))
        assert any(map(wanted.search, told)), "\n".join([message, "is not among", *told])
