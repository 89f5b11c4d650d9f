"""A camera that nobody has described, from pictures of its mask."""

# %% [markdown]
# # My own camera, from calibration pictures
#
# A reconstruction needs to know where each wavelength lands on the sensor. In light of a single wavelength
# the sensor shows the mask itself, shifted according to that wavelength, so a few such pictures are enough.
# You need a monochromator, or a white lamp with four or more narrow-band filters, and no scene in front of it.
#
# ## Five pictures
#
# Here they are simulated, for a camera whose prism spreads blue further than red, as glass does. In the lab they
# are files, and `prismask camera 455=a.tif 490=b.tif 530=c.tif 580=d.tif 645=e.tif -o lab.nc` does all of the
# following.

# %%
import matplotlib.pyplot as plt
import numpy as np
import torch
from scipy.ndimage import shift

import prismask
from prismask.optics import Gaussian, fabricate_mask

mask = fabricate_mask((128, 128), torch.Generator().manual_seed(5)).numpy()


def place(wavelength):
    """Where the prism sends a wavelength, in pixels; unknown in the lab."""
    return 84 * (1 - 455 / wavelength) / (1 - 455 / 645)


random = np.random.default_rng(0)
pictures = {}
for wavelength in (455, 490, 530, 580, 645):
    picture = np.zeros((128, 212))
    picture[:, :128] = mask
    picture = shift(picture, (0, place(wavelength)), order=3)
    pictures[wavelength] = np.clip(picture + 0.01 * random.standard_normal(picture.shape), 0, 1)

figure, axes = plt.subplots(1, 5, figsize=(12, 2), layout="constrained")
for ax, (wavelength, picture) in zip(axes, pictures.items(), strict=True):
    ax.imshow(picture, cmap="gray")
    ax.set_title(f"{wavelength} nm")
    ax.axis("off")

# %% [markdown]
# ## The camera from the pictures

# %%
measured = prismask.measure_camera(pictures)
print(
    f"{measured.camera.bands} bands, {measured.wavelengths[0]:.0f} to {measured.wavelengths[-1]:.0f} nm"
)
print(f"places of the pictures and the curve differ by {measured.misfit_px:.2f} px at most")
for finding in measured.findings:
    print("note:", finding)
measured.mask

# %%
at = np.linspace(455, 645, 100)
figure, ax = plt.subplots(figsize=(6, 3.2), layout="constrained")
ax.plot(at, measured.curve(at), label="the curve through them")
places = [(one.wavelength_nm, one.along) for one in measured.places]
ax.plot(*zip(*places, strict=True), "o", label="the pictures")
ax.plot(measured.wavelengths, measured.curve(measured.wavelengths), "|", label="bands")
ax.set(xlabel="wavelength in nm", ylabel="place in pixels")
legend = ax.legend()

# %% [markdown]
# The bands are chosen to lie about two pixels apart, as in the training of the networks; `bands=` and
# `wavelengths=` choose others. The mask contains the description of the camera: save it once, and every later
# reconstruction reads the dispersion and the wavelengths from it.

# %%
prismask.save(measured.mask, "lab.nc")

# %% [markdown]
# ## Its first snapshot
#
# A scene photographed with this camera, and its reconstruction:

# %%
camera = measured.camera
scene = prismask.demo_scene(camera.scene_size((128, 212)), wavelengths=measured.wavelengths)
true_mask = np.asarray(measured.mask)
snapshot = prismask.simulate(scene, true_mask, camera, Gaussian(0.002))
cube = prismask.reconstruct(np.asarray(snapshot), "lab.nc")
cube

# %% check
assert measured.misfit_px < 0.1
true_places = np.array([place(w) for w in measured.wavelengths])
offsets = np.array(camera.offsets)
assert np.abs(offsets - offsets[0] - (true_places - true_places[0])).max() < 0.2
assert cube.wavelengths is not None

# %% [markdown]
# Wavelengths, band count and dispersion all came from the mask's file. For other kinds of camera, and for every
# message about one that does not fit, see [bring your own camera](../camera.md).
