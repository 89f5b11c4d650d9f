"""What a score does not tell: spectra, spread, whether error bars are true, what g has learned."""
