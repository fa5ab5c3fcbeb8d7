"""Sizes of CIFAR-10, and the learning rates and other settings of each optimizer."""

CLASSES = 10
TRAIN_IMAGES, TEST_IMAGES = 50_000, 10_000
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
REFERENCE = 512
"""The batch at which the learning rate is `lr`."""
RATES = {"sgd": 0.1, "lars": 10.0, "lars-fp16-norms": 10.0}
"""Learning rates of `lr=0`."""
MOMENTUM, DECAY, TRUST = 0.9, 5e-4, 1e-3
