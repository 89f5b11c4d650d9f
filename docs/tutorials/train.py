"""A network for a camera that nobody else has."""

# %% [markdown]
# # Train for my camera
#
# The networks that ship work with most cameras. A camera with few bands, or an application with only one kind of
# scene, may justify a network of its own. This page trains a small one in seconds: enough to show how it works,
# not enough for good cubes.
#
# ## Training data
#
# Cubes `(bands, height, width)`, in memory or in files. Here they are drawn, with eight bands.

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
# ## Training
#
# A configuration is a dictionary with the structure of a TOML file (`configs/` has many to start from). Settings
# that you leave out have defaults; a misspelt one is an error with a suggestion.

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
    """Called with every line of the training log."""
    if "loss" in line:
        losses.append(float(line["loss"]))


outcome = prismask.train(config, "run", scenes=scenes, mask=mask, report=note)

figure, ax = plt.subplots(figsize=(6, 2.8), layout="constrained")
ax.plot(losses)
ax.set(xlabel="line of the training log", ylabel="loss (log of the error)")

# %% [markdown]
# Everything is saved in the folder `run`: weights, the resolved configuration, curves, versions and hashes. A run
# that was interrupted continues with `resume=True`, with bit-identical results.
#
# ## Using it

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
# A network has no error bars until `prismask calibrate` has fitted them. To train for hours, on several GPUs, from
# the weights that ship, or with masks that are wrong on purpose, see [train](../howto/train.md).
