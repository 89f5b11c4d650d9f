"""Real snapshots of two instruments, as their files come."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from prismask.apps.cli import app as cli
from prismask.errors import PrismaskWarning, ValuesError
from prismask.inference.reconstruct import reconstruct
from prismask.models.registry import create_model
from prismask.scenes.formats.files import load_cube, load_mask
from prismask.scenes.records import Mask

pytestmark = [pytest.mark.data, pytest.mark.slow]

SNAPSHOTS = {
    **{f"tsanet_scene{k}": ("tsanet_real_660", 28) for k in range(1, 6)},
    "smem_fern_root": ("smem_real_660", 24),
    "smem_resolution_target": ("smem_real_660", 24),
}


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_out_of_the_box(
    data_folder: Path, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    mask, bands = SNAPSHOTS[name]
    out = tmp_path / "cube.nc"
    code = cli.run(
        ["reconstruct", str(data_folder / "measurements" / f"{name}.mat"),
         "--mask", str(data_folder / "masks" / f"{mask}.mat"),
         "-o", str(out), "--iterations", "3"]
    )  # fmt: skip
    said = capsys.readouterr().err
    assert code == 0, said
    assert "warning" not in said
    assert ("24 bands at 2 px are assumed" in said) == (bands == 24)
    assert "dark level" in said
    cube = load_cube(out)
    assert cube.values.shape == (bands, 660, 660)
    assert 0 < cube.attrs["dark_level"] < 0.02
    assert 0.0005 < cube.attrs["noise_std"] < 0.003
    assert cube.attrs["residual_relative"] < 0.25
    assert (tmp_path / "cube.quicklook.png").stat().st_size > 10_000


def test_a_wrong_mask_is_said_and_seen(data_folder: Path) -> None:
    """The self-check, too, tells the right mask from a flipped and a shifted one."""
    snapshot = data_folder / "measurements" / "tsanet_scene5.mat"
    right = load_mask(data_folder / "masks" / "tsanet_real_660.mat")
    wrong = {
        "flipped left-right": Mask(right.values[:, ::-1]),
        "shifted by -3 rows and +5 columns": Mask(np.roll(right.values, (3, -5), (0, 1))),
        "not found in the snapshot": load_mask(data_folder / "masks" / "smem_real_660.mat"),
    }
    good = reconstruct(snapshot, right, method="gap-tv", iterations=4)
    assert not [text for text in good.attrs["findings"] if text.startswith("warning")]
    for sentence, mask in wrong.items():
        is_sure = sentence.startswith("flipped")
        if is_sure:
            with pytest.raises(ValuesError, match=f"{sentence} .*np\\.fliplr"):
                reconstruct(snapshot, mask, method="gap-tv", iterations=4)
            bad = reconstruct(snapshot, mask, method="gap-tv", iterations=4, check_mask=False)
        else:
            with pytest.warns(PrismaskWarning, match=re.escape(sentence)):
                bad = reconstruct(snapshot, mask, method="gap-tv", iterations=4)
            assert sentence in " ".join(bad.attrs["findings"])
        assert bad.attrs["residual_rms"] > 1.1 * good.attrs["residual_rms"]


# Untrained networks may well contradict the mask.
@pytest.mark.filterwarnings("ignore::prismask.errors.PrismaskWarning")
@pytest.mark.parametrize("name", ["tsanet_scene3", "smem_fern_root"])
def test_a_network_takes_both_instruments(data_folder: Path, name: str) -> None:
    """An untrained one: what counts here is that sizes, bands, scale and units work out."""
    mask, bands = SNAPSHOTS[name]
    model = create_model("lumen", seed=0, width=8, stages=2, levels=1, cosines=8).eval()
    model.record["step_px"] = 2.0
    cube = reconstruct(
        data_folder / "measurements" / f"{name}.mat", data_folder / "masks" / f"{mask}.mat",
        model=model, samples=2, tile=256,
    )  # fmt: skip
    assert cube.values.shape == (bands, 660, 660)
    assert cube.std is not None
    assert 5 < cube.attrs["network_gain"] < 20
    assert "the cube is divided by it again" in " ".join(cube.attrs["findings"])
