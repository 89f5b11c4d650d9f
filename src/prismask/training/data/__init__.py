"""Training data: crops, augmentation, masks, batches."""
