"""Several methods on the same snapshots, with scores that have names."""

# %% [markdown]
# # Compare methods
#
# Which method is best for a camera? Simulate snapshots of scenes whose truth is known and compare them all.
# Every score here has a named convention, because "PSNR" alone has at least four meanings in this field.

# %%
import time

import matplotlib.pyplot as plt
import torch

import prismask
from prismask.optics import Gaussian, fabricate_mask

mask = fabricate_mask((128, 128), torch.Generator().manual_seed(13)).numpy()
scene = prismask.demo_scene(128)
snapshot = prismask.simulate(scene, mask, sensor=Gaussian(0.004))

methods = {
    "network": {},
    "gap-tv": {"method": "gap-tv"},
    "twist": {"method": "twist", "iterations": 40},
    "pnp": {"method": "pnp", "iterations": 20},
}
cubes = {}
for name, how in methods.items():
    started = time.perf_counter()
    cubes[name] = prismask.reconstruct(snapshot, mask, **how)
    seconds = time.perf_counter() - started
    found = prismask.score(cubes[name], scene, ["psnr_paper", "ssim", "sam"])
    print(
        f"{name:8} {found['psnr_paper']:5.1f} dB  SSIM {found['ssim']:.3f}  "
        f"{found['sam']:4.1f}°  {seconds:4.1f} s"
    )

# %%
figure, axes = plt.subplots(2, 5, figsize=(12, 5), layout="constrained")
for column, (name, cube) in enumerate({"truth": scene, **cubes}.items()):
    axes[0, column].imshow(cube.rgb())
    axes[1, column].imshow(cube.values[cube.band(600)], cmap="gray", vmin=0, vmax=0.8)
    axes[0, column].set_title(name)
for ax in axes.flat:
    ax.axis("off")

# %% [markdown]
# The first row is in true colour, the second shows the band at 600 nm. One scene is an example, not a result.
# For a result, use many scenes and masks that no network has seen; `evaluate` does this and gives the spread of
# the scores:

# %%
result = prismask.evaluate(
    ["gap-tv:iterations=20", "twist:iterations=20"],
    scenes={"one": prismask.demo_scene(64), "two": prismask.demo_scene(64, seed=1, illuminant="A")},
    masks={"mine": mask},
    trials=3,
    metrics=("psnr_paper", "sam"),
    timing=False,
)
print(result.markdown)

# %% check
assert prismask.score(cubes["network"], scene)["psnr_paper"] > 22
assert len(cubes) == 4

# %% [markdown]
# For what the methods do, see [choose a method](../howto/choose.md); for their scores on the field's test scenes,
# [results](../results.md); to add your own, [a solver of your own](../howto/solver.md).
