"""From a snapshot to a cube, a picture and a spectrum."""

# %% [markdown]
# # First reconstruction
#
# A CASSI camera records one grey picture. This page turns such a picture into a cube with a spectrum in every
# pixel. The snapshot is simulated first; if you have files of your own, start at [Reconstruct](#reconstruct).
#
# ## Take a snapshot
#
# A scene with a colour chart, in 28 bands from 453 to 648 nm, and a typical mask of such a camera:

# %%
import matplotlib.pyplot as plt
import torch

import prismask
from prismask.optics import Gaussian, fabricate_mask

scene = prismask.demo_scene(256)
mask = fabricate_mask((256, 256), torch.Generator().manual_seed(3)).numpy()
snapshot = prismask.simulate(scene, mask, sensor=Gaussian(0.002), seed=0)
snapshot

# %%
figure, axes = plt.subplots(1, 3, figsize=(10, 3), layout="constrained")
axes[0].imshow(scene.rgb())
axes[1].imshow(mask, cmap="gray")
axes[2].imshow(snapshot, cmap="gray")
for ax, title in zip(axes, ("scene", "mask", "snapshot"), strict=True):
    ax.set_title(title)
    ax.axis("off")

# %% [markdown]
# The snapshot is 54 pixels wider than the scene: the prism shifts each of the 28 bands two pixels further to the
# right than the one before, and all of them fall on the same sensor.
#
# ## Reconstruct
#
# Snapshot and mask can be files, NumPy arrays, torch tensors or records; with files, write
# `prismask.reconstruct("snapshot.mat", "mask.mat")`.

# %%
cube = prismask.reconstruct(snapshot, mask)
cube

# %% [markdown]
# `cube.values` is an array `(bands, height, width)`, `cube.wavelengths` holds the wavelengths of the bands, and
# `cube.lower` and `cube.upper` are the ends of the error bar of every single value.
#
# ## View
#
# The scene in true colour, one band, and the spectra of three patches of the chart. The line is the estimate, the
# shaded area its error bar, and the points are the truth, which is known only because this is a simulation:

# %%
figure, axes = plt.subplots(1, 3, figsize=(12, 3.4), layout="constrained")
cube.plot(ax=axes[0])
cube.plot(550, ax=axes[1])
axes[0].set_title("true colour")
for x, y, colour in ((50, 80, "tab:green"), (76, 80, "tab:red"), (104, 80, "goldenrod")):
    seen = cube.spectrum((x - 4, y - 4, x + 4, y + 4))
    true = scene.spectrum((x - 4, y - 4, x + 4, y + 4))
    axes[2].plot(seen.wavelengths, seen.values, color=colour, label=f"x {x}, y {y}")
    axes[2].fill_between(seen.wavelengths, seen.lower, seen.upper, color=colour, alpha=0.25)
    axes[2].plot(true.wavelengths, true.values, ".", color=colour)
    axes[0].plot(x, y, "+", color=colour, markersize=12, markeredgewidth=2)
axes[2].set(xlabel="wavelength in nm", ylabel="fraction of full scale", ylim=(0, None))
legend = axes[2].legend()
is_inside = (cube.lower <= scene.values) & (scene.values <= cube.upper)
print(f"{is_inside.mean():.0%} of all true values are inside the 90 % interval")

# %% [markdown]
# A 90 % interval is meant to miss some values, about one in ten over many scenes.
# [When to trust the error bars](error_bars.py) says more.
#
# ## Save
#
# NetCDF stores everything: the error bars, the wavelengths and how the cube was made. xarray, MATLAB and
# Panoply can open it.

# %%
prismask.save(cube, "cube.nc")
again = prismask.load("cube.nc")
print(again.attrs["residual"])

# %% check
import numpy as np

assert np.array_equal(again.values, cube.values)
assert cube.lower is not None
assert prismask.score(cube, scene)["psnr_paper"] > 28
assert 0.8 < is_inside.mean() < 0.99

# %% [markdown]
# The last line is the *self-check*: the cube is projected through the camera again and compared with the
# snapshot.
#
# Next: [your own camera](camera.py).
