"""What teachers and students share one floor down: small networks, augmentation, and one trained model on disk."""
