"""What the interval promises, how to check it, and where it must not be believed."""

# %% [markdown]
# # Error bars, and when to trust them
#
# Every value of a network's cube comes with the ends of an interval: 90 % of the true values lie inside, on
# scenes like those the interval was fitted on. This page checks that on a drawn scene, shows what an average
# hides, and looks at a spectrum that the network does not believe.
#
# ## Does it hold?

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
    """Where the true value lies within the interval, (bands, height, width)."""
    return (cube.lower <= scene.values) & (scene.values <= cube.upper)


held = inside(cube, scene)
print(cube.attrs["interval"])
print(f"inside: {held.mean():.1%}")

# %% [markdown]
# The interval is no single number. It is wide at edges and in busy parts, where the network is unsure, and
# narrow on even surfaces:

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

# %%
brightness = scene.values.mean(axis=0)
change = sum(np.abs(step) for step in np.gradient(brightness))
edges, even = change > np.quantile(change, 0.9), change < np.quantile(change, 0.5)
print(f"mean width: {width[edges].mean():.3f} at edges, {width[even].mean():.3f} on even surfaces")

# %% check
assert 0.7 < held.mean() <= 1
assert width[edges].mean() > 2 * width[even].mean()

# %% [markdown]
# ## What an average hides
#
# 90 % of all values is not 90 % everywhere. Errors come in patches, and so do the values outside. Of squares
# of 16×16 pixels:

# %%
squares = held.reshape(len(held), 8, 16, 8, 16).mean(axis=(0, 2, 4))
print(f"inside: {squares.min():.0%} in the worst square, {squares.max():.0%} in the best")

# %% check
assert squares.min() < held.mean() - 0.1

# %% [markdown]
# ## A line that nobody expects
#
# Most things have smooth spectra, and that is what a network learns. Here a surface shines in a single band
# besides. Look at the interval, not only at the curve, and ask a method that has learned nothing as well:

# %%
rows, columns, band = slice(80, 110), slice(20, 60), 14
values = scene.values.copy()
values[band, rows, columns] += 0.3
line = prismask.Cube(values, scene.wavelengths)
snapshot = prismask.simulate(line, mask, sensor=Gaussian(0.002))
network = prismask.reconstruct(snapshot, mask)
solver = prismask.reconstruct(snapshot, mask, method="gap-tv")

where = (20, 80, 60, 110)
figure, ax = plt.subplots(figsize=(7, 3.6), layout="constrained")
seen, true = network.spectrum(where), line.spectrum(where)
ax.fill_between(seen.wavelengths, seen.lower, seen.upper, alpha=0.25)
ax.plot(seen.wavelengths, seen.values, label="network, with its interval")
ax.plot(seen.wavelengths, solver.spectrum(where).values, label="gap-tv")
ax.plot(true.wavelengths, true.values, "k.", label="truth")
ax.set(xlabel="wavelength in nm", ylabel="fraction of full scale", ylim=(0, None))
legend = ax.legend()
at_line = inside(network, line)[band, rows, columns].mean()
print(f"at the line: {seen.values[band]:.2f}, true {true.values[band]:.2f}, inside {at_line:.0%}")
print(f"trust: {network.attrs['trust']:.2f}, {network.attrs['trust_grade']}")

# %% check
assert at_line > 0.7
assert seen.upper[band] - seen.lower[band] > 2 * np.median(seen.upper - seen.lower)

# %% [markdown]
# The interval opens where the two disagree: the solver's cube is part of the evidence that it is predicted
# from. The grade of trust speaks of the whole snapshot, and does not know of one surface.

# %% [markdown]
# ## Before you trust a number
#
# 1. **Read the warnings.** A snapshot that contradicts its mask has errors that no interval knows of.
# 2. **Read the self-check**, `cube.attrs["residual"]`: several times the noise is a question, not an answer.
# 3. **Expect lines?** Compare with `method="gap-tv"`. Where they differ, report the interval, not the curve.
# 4. **Averages are not surer.** Errors of neighbouring pixels go together: the mean of a region keeps the
#    interval of its pixels.
# 5. **Have truth?** One scene that was measured by other means, `prismask.score` and the share inside, tell
#    more than this page.
#
# The whole story, with what was measured: [what the error bar means](../uncertainty.md).
