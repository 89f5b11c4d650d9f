"""The command `prismask`.

Each command is a small module beside this one that imports what is heavy (torch, xarray, colour)
inside its function, so that `prismask --help` answers at once.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Sequence

from cyclopts import App, CycloptsError, Parameter, UnknownOptionError

from prismask import __version__
from prismask.apps.cli.calibrate import calibrate
from prismask.apps.cli.camera import camera
from prismask.apps.cli.camera_refine import check, refine
from prismask.apps.cli.demo import demo
from prismask.apps.cli.evaluate import analyse, evaluate, join, report, spectra_test, stress
from prismask.apps.cli.evaluate_pair import evaluate_pair
from prismask.apps.cli.export import export
from prismask.apps.cli.files import convert, info
from prismask.apps.cli.models import models
from prismask.apps.cli.reconstruct import reconstruct
from prismask.apps.cli.render import render
from prismask.apps.cli.serve import serve
from prismask.apps.cli.simulate import simulate
from prismask.apps.cli.spectra import spectra
from prismask.apps.cli.terminal import complain, settle_streams, settle_threads, silence
from prismask.apps.cli.train import train
from prismask.apps.cli.view import view
from prismask.checks import closest
from prismask.errors import PrismaskError
from prismask.wording import speaking_flags

WRONG_INPUT = 2
INTERRUPTED = 130

app = App(
    name="prismask",
    version=__version__,
    help="Hyperspectral cubes from one coded CASSI snapshot.",
    help_epilogue="Any command takes --debug, which shows the traceback of an error. Existing "
    "files are kept unless --overwrite is given.",
    # `run` says it in our words, and a command may say how to go on.
    suppress_keyboard_interrupt=False,
)

for command in (
    demo, info, simulate, reconstruct, view, serve, models, calibrate, render,
    spectra, evaluate_pair, convert, export, join, report,
):  # fmt: skip
    app.command(command)
# A camera is measured from pictures, refined and checked from snapshots.
cameras = App(name="camera")
cameras.default(camera)
cameras.command(refine)
cameras.command(check)
app.command(cameras)
for scoring in (train, evaluate, stress, spectra_test, analyse):
    # Flags that are off by default need no second name that turns them off.
    app.command(scoring, default_parameter=Parameter(negative=()))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and exit: 0 when it worked, 2 for wrong input, 130 when interrupted."""
    settle_streams()
    settle_threads()
    sys.exit(run(list(sys.argv[1:] if arguments is None else arguments)))


def run(arguments: list[str]) -> int:
    """Run a command and return its exit code; wrong input is reported in one sentence."""
    debug = "--debug" in arguments
    arguments = _with_negative_lists([word for word in arguments if word != "--debug"])
    logging.basicConfig(
        level=logging.DEBUG if debug else logging.WARNING, format="prismask: %(message)s"
    )
    try:
        with speaking_flags():
            code = app(
                arguments, exit_on_error=False, print_error=False, result_action="return_value"
            )
        sys.stdout.flush()
    except KeyboardInterrupt:
        complain("interrupted.")
        return INTERRUPTED
    except CycloptsError as error:
        complain(f"{_parsing(error)} Try: {_help_for(arguments)}.")
        return WRONG_INPUT
    except BrokenPipeError:
        # The reader of our output (`| head`) has gone; nothing is left to say.
        silence(sys.stdout)
        return 0
    except (PrismaskError, OSError) as error:
        if debug:
            raise
        complain(_sentence(error))
        return WRONG_INPUT
    # A command may end well and still have something to tell the shell.
    return code if isinstance(code, int) else 0


def _parsing(error: CycloptsError) -> str:
    """The sentence about words that are no command; an option that is meant has to be like them."""
    if not isinstance(error, UnknownOptionError):
        return str(error)
    sentence, _, _ = str(error).partition(" Did you mean ")
    known = [name for one in error.argument_collection if one.parse for name in one.names]
    word = (error.token.keyword or error.token.value).partition("=")[0]
    meant = closest(word, [*known, "--help"])
    return sentence if meant is None else f"{sentence} Did you mean {meant}?"


def _with_negative_lists(arguments: list[str]) -> list[str]:
    """`--points -1,7` as `--points=-1,7`: a list that begins with a minus is no option."""
    words: list[str] = []
    option = ""
    for word in arguments:
        if option and re.fullmatch(r"-\d[\d.]*(,-?\d[\d.]*)+", word):
            if words[-1] == option:
                words.pop()
            word = f"{option}={word}"
        elif word.startswith("--"):
            option = "" if "=" in word else word
        words.append(word)
    return words


def _help_for(arguments: list[str]) -> str:
    known = arguments and arguments[0] in app
    return f"prismask {arguments[0]} --help" if known else "prismask --help"


def _sentence(error: Exception) -> str:
    if isinstance(error, OSError) and not isinstance(error, PrismaskError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror}."
    return str(error)
