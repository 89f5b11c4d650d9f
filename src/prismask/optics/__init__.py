"""Optics: the CASSI operator, dispersion, masks and their faults, the sensor."""
