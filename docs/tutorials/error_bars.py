"""What the interval promises, how to check it, and where it must not be believed."""

# %% [markdown]
# # Error bars, and when to trust them
#
# Every value of a network's cube comes with the ends of an interval: 90 % of the true values lie inside, on
# scenes like those the interval was fitted on. This page checks that, and then looks for a scene where it
# cannot hold.
#
# ## A scene it can know

# %%
import matplotlib.pyplot as plt
import numpy as np
import torch

import prismask
from prismask.optics import Gaussian, fabricate_mask

mask = fabricate_mask((128, 128), torch.Generator().manual_seed(11)).numpy()
scene = prismask.demo_scene(128)
snapshot = prismask.simulate(scene, mask, sensor=Gaussian(0.002))
cube = prismask.reconstruct(snapshot, mask)


def inside(cube, scene):
    """Share of the true values within the interval."""
    return float(((cube.lower <= scene.values) & (scene.values <= cube.upper)).mean())


print(cube.attrs["interval"])
print(f"inside: {inside(cube, scene):.1%}")

# %% [markdown]
# The interval is no single number. It is wide where the network is unsure, at edges and in dark corners, and
# narrow on even patches:

# %%
figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
width = (cube.upper - cube.lower).mean(axis=0)
error = np.abs(cube.values - scene.values).mean(axis=0)
for ax, picture, title in zip(
    axes, (width, error), ("width of the interval", "true error"), strict=True
):
    shown = ax.imshow(picture, cmap="cividis", vmax=np.quantile(picture, 0.99))
    figure.colorbar(shown, ax=ax, label="fraction of full scale")
    ax.set_title(title)
    ax.axis("off")

# %% [markdown]
# ## What was it fitted on?
#
# An interval speaks of scenes like those of its fit: natural scenes in smooth light. A fluorescent lamp has
# lines that are narrower than a band. The network has learned smooth spectra, and an interval cannot reach
# what was never shown. Ask a method without such habits as well:

# %%
lamp = prismask.demo_scene(128, illuminant="FL11")
snapshot = prismask.simulate(lamp, mask, sensor=Gaussian(0.002))
network = prismask.reconstruct(snapshot, mask)
solver = prismask.reconstruct(snapshot, mask, method="gap-tv")

where = (18, 100, 26, 108)
figure, ax = plt.subplots(figsize=(7, 3.6), layout="constrained")
seen, true = network.spectrum(where), lamp.spectrum(where)
ax.fill_between(seen.wavelengths, seen.lower, seen.upper, alpha=0.25)
ax.plot(seen.wavelengths, seen.values, label="network, with its interval")
ax.plot(seen.wavelengths, solver.spectrum(where).values, label="gap-tv")
ax.plot(true.wavelengths, true.values, "k.", label="truth")
ax.set(xlabel="wavelength in nm", ylabel="fraction of full scale", ylim=(0, None))
legend = ax.legend()
print(f"inside, under this lamp: {inside(network, lamp):.1%}")

# %% check
assert 0.7 < inside(cube, scene) <= 1
assert 0 < inside(network, lamp) <= 1

# %% [markdown]
# ## Before you trust a number
#
# 1. **Read the warnings.** A snapshot that contradicts its mask has errors that no interval knows of.
# 2. **Read the self-check**, `cube.attrs["residual"]`: several times the noise is a question, not an answer.
# 3. **Expect lines?** Compare with `method="gap-tv"`. Where both agree, good; where they differ, the interval
#    is not the last word.
# 4. **Averages are not surer.** Errors of neighbouring pixels go together: the mean of a region keeps the
#    interval of its pixels.
# 5. **Have truth?** One scene that was measured by other means, `prismask.score` and the share inside, tell
#    more than this page.
#
# The whole story, with what was measured: [what the error bar means](../uncertainty.md).
