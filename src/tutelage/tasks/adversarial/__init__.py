"""The DP-WGAN of paper 004: critics answer generated images with gradients that are clipped and noised."""
