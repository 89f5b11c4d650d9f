"""A mask that has moved since its calibration, and what to do about it."""

# %% [markdown]
# # A wrong mask, and what to do
#
# Masks move: somebody touches the holder, the lab warms up, the lens is refocused. A fraction of a pixel costs
# decibels, and the picture looks as before. Here is how to notice, and how to mend it without a new calibration.
#
# The snapshot is taken through a mask that lies 0.45 px beside its calibration, in rows and in columns:

# %%
import matplotlib.pyplot as plt
import numpy as np
import torch
from scipy.ndimage import shift

import prismask
from prismask.optics import Gaussian, fabricate_mask

scene = prismask.demo_scene(96)
moved = fabricate_mask((96, 96), torch.Generator().manual_seed(8)).numpy()
calibrated = np.clip(shift(moved, (0.45, 0.45), order=3, mode="nearest"), 0, 1)
snapshot = prismask.simulate(scene, moved, sensor=Gaussian(0.002))

# %% [markdown]
# ## Notice
#
# `reconstruct` asks whether a mask near the given one would explain more of the snapshot. If so, that is a
# `PrismaskWarning`. (`align=False` keeps the mask as it was calibrated, to show what that costs.)

# %%
cube = prismask.reconstruct(snapshot, calibrated, align=False)
print(cube.attrs["residual"])

# %% [markdown]
# On the command line the same line begins with `warning:`, on the web page it stands at the top with a button
# that mends it.
#
# ## Mend
#
# Without that, the pose of the mask is found from the snapshot itself: where it lies, how sharp it is, how far
# the spectrum spreads. (`align=True` searches even if nothing looks wrong.) The network is run on a few lines of the frame, told that nobody knows the mask exactly; the pose that
# explains the snapshot best is taken if it explains other lines clearly better, and the cube is made with it.

# %%
aligned = prismask.reconstruct(snapshot, calibrated)
print(aligned.attrs["residual"])
print(f"{aligned.attrs['seconds']:.1f} s instead of {cube.attrs['seconds']:.1f} s")
print(next(line for line in aligned.attrs["findings"] if "the mask lies" in line))

# %% [markdown]
# How much of the loss that mends shows the cube that the same network makes with the true mask. (It learned to
# live with wrong masks, so the loss is small to begin with; its name is above the pictures.)

# %%
best = prismask.reconstruct(snapshot, moved, model=aligned.attrs["model"])
figure, axes = plt.subplots(1, 3, figsize=(11, 3.9), layout="constrained")
titles = ("as calibrated", "aligned", "with the true mask")
for ax, made, title in zip(axes, (cube, aligned, best), titles, strict=True):
    error = np.abs(made.values - scene.values).mean(axis=0)
    shown = ax.imshow(error, cmap="cividis", vmin=0, vmax=0.1)
    score = prismask.score(made, scene)["psnr_paper"]
    ax.set_title(f"{title}: {score:.1f} dB\n{made.attrs['model']}")
    ax.axis("off")
bar = figure.colorbar(shown, ax=axes, label="mean error over the bands")

# %% check
psnr = [prismask.score(made, scene)["psnr_paper"] for made in (cube, aligned, best)]
assert psnr[0] + 1 < psnr[1] < psnr[2] + 0.3
assert cube.attrs["mask_inconsistent"]

# %% [markdown]
# ## Once for all
#
# The pose belongs to the camera, not to the snapshot. Find it once and pass the aligned cube as `pose=` (or
# `--pose cube.nc`) for every other snapshot of the same day:

# %%
other = prismask.demo_scene(96, seed=1)
shot = prismask.simulate(other, moved, sensor=Gaussian(0.002), seed=1)
plain = prismask.reconstruct(shot, calibrated, align=False)
quick = prismask.reconstruct(shot, calibrated, pose=aligned)
for made, how in ((plain, "as calibrated"), (quick, "in the pose found before")):
    score = prismask.score(made, other)["psnr_paper"]
    print(f"{how}: {score:.1f} dB, {made.attrs['seconds']:.0f} s")

# %% check
assert prismask.score(plain, other)["psnr_paper"] + 1 < prismask.score(quick, other)["psnr_paper"]

# %% [markdown]
# | what you see | what it means | what to do |
# |---|---|---|
# | *the snapshot contradicts its mask* | the mask lies a fraction of a pixel elsewhere, is out of focus, or the dispersion is a little off | nothing: the mask is read where it is; then `pose=` |
# | *the mask fits this snapshot clearly better shifted* | it lies whole pixels away | `align=True` up to three of them, else move it in its file |
# | *the mask is in this snapshot, but transposed* (or flipped) | one file is the wrong way round | turn it as the message says |
# | *the mask's pattern is not found* | another instrument's mask, or not in the sensor's pixels | find the right file |
# | sizes that do not fit | mask or snapshot is cropped, or the dispersion is another one | the message names the crop, the band count or the spread |
