"""The errors a person can act on.

Every error Prismask raises on purpose is a `PrismaskError` and also the builtin a caller would
expect (`ShapeError` is a `ValueError`), so `except ValueError` keeps working and the command
line can show the sentence without a traceback.
"""

from __future__ import annotations


class PrismaskError(Exception):
    """Base of all errors raised on purpose; its message says what came, what fits, what to do."""


class ShapeError(PrismaskError, ValueError):
    """An array has the wrong number of dimensions or a size that does not fit the others."""


class ValuesError(PrismaskError, ValueError):
    """An array holds NaN, infinity, or values outside the stated range."""


class FormatError(PrismaskError, ValueError):
    """A file cannot be understood, or does not hold what it should."""


class MissingPartError(PrismaskError, ImportError):
    """An optional dependency is absent; the message names the extra that brings it."""


class ConfigError(PrismaskError, ValueError):
    """A configuration key or value is unknown or contradicts another."""


class DataMissingError(PrismaskError, FileNotFoundError):
    """A file or data folder is not where it was looked for."""


class OutputExistsError(PrismaskError, FileExistsError):
    """The output exists already and overwriting it was not allowed."""


class FolderInUseError(PrismaskError, OSError):
    """Another run is writing into the folder right now."""


class WriteFailedError(PrismaskError, OSError):
    """The output could not be written (full disk, no permission); what was there is untouched."""


class WeightsError(PrismaskError, ValueError):
    """A weights or checkpoint file is damaged or belongs to something else."""


class OverlapError(PrismaskError, ValueError):
    """Training and test masks share pixels."""


class DeviceError(PrismaskError, RuntimeError):
    """The wanted device is not available."""


class WorkerLostError(DeviceError):
    """A worker process died, or a cluster cannot be reached."""


class DivergedError(PrismaskError, ArithmeticError):
    """A loss or a reconstruction stopped being finite."""


class PrismaskWarning(UserWarning):
    """A result that may be wrong, such as a cube whose snapshot contradicts its mask.

    Whoever wants an error instead says `warnings.simplefilter("error", PrismaskWarning)`.
    """
