"""Models: backbones, the self-tuning network, the mask posterior, registry, weights."""
