"""A network for a camera that nobody else has."""

# %% [markdown]
# # Train for my camera
#
# The networks that ship serve most cameras as they are. A camera with few bands, or scenes of one kind only,
# may be worth a network of its own. This page trains a small one in seconds, which is enough to see how it
# goes and not enough to be good.
#
# ## What it learns from
#
# Cubes `(bands, height, width)` in memory or in files. Here: drawn ones, eight bands.

# %%
import matplotlib.pyplot as plt
import numpy as np
import torch

import prismask
from prismask.optics import CASSI, Gaussian, fabricate_mask
from prismask.scenes import random_scene

nm = np.linspace(460, 640, 8)
scenes = [random_scene(seed, (64, 64), nm) for seed in range(12)]
mask = fabricate_mask((96, 96), torch.Generator().manual_seed(2)).numpy()

figure, axes = plt.subplots(1, 6, figsize=(11, 2), layout="constrained")
for ax, scene in zip(axes, scenes, strict=False):
    ax.imshow(scene.rgb())
    ax.axis("off")

# %% [markdown]
# ## How it learns
#
# A configuration is a table of tables, the same as in a TOML file (`configs/` has many to begin from). What
# is not said has a default; what is misspelt is an error with a suggestion.

# %%
config = {
    "name": "mine",
    "camera": {"bands": 8, "step": 2.0},
    "data": {"crop": 32, "scale": [1.0, 1.0]},
    "model": {"backbone": "srn-looks+", "options": {"width": 24, "blocks": 4, "looks": 2}},
    "posterior": {"kind": "none"},
    "loss": {"kind": "log"},
    "optimizer": {"kind": "muon", "muon_rate": 0.006, "ramp_steps": 20},
    "schedule": {"mode": "plain", "batch": 4, "epochs": 24, "epoch_crops": 64},
    "output": {"validate_every": 24},
}
losses = []


def note(line):
    """Called with what a training has to tell."""
    if "loss" in line:
        losses.append(float(line["loss"]))


outcome = prismask.train(config, "run", scenes=scenes, mask=mask, report=note)

figure, ax = plt.subplots(figsize=(6, 2.8), layout="constrained")
ax.plot(losses)
ax.set(xlabel="line of the log", ylabel="loss (log of the error)")

# %% [markdown]
# Everything is in the folder `run`: weights, the configuration as it was understood, curves, versions and
# hashes. A run that is killed goes on with `resume=True`, bit for bit.
#
# ## Use it

# %%
camera = CASSI.from_step(8, 2.0)
scene = random_scene(99, (64, 64), nm)
aperture = mask[:64, :64]
snapshot = prismask.simulate(scene, aperture, camera, Gaussian(0.002))
mine = prismask.reconstruct(snapshot, aperture, camera, model="run/weights.safetensors")
plain = prismask.reconstruct(snapshot, aperture, camera, method="gap-tv")

figure, axes = plt.subplots(1, 3, figsize=(8.5, 3), layout="constrained")
for ax, cube, title in zip(
    axes, (scene, mine, plain), ("scene", "my network", "gap-tv"), strict=True
):
    ax.imshow(cube.rgb())
    said = "" if cube is scene else f": {prismask.score(cube, scene)['psnr_paper']:.1f} dB"
    ax.set_title(title + said)
    ax.axis("off")

# %% check
assert outcome.finished
assert losses[-1] < losses[0]

# %% [markdown]
# A network has no error bar until one is fitted: `prismask calibrate`. How to train for hours, on several
# GPUs, from the weights that ship, with masks that are wrong on purpose: [train](../howto/train.md).
