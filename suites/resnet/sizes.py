"""Sizes of CIFAR-100, and how the article of 2019 (2080 Ti against 1080 Ti) divided it."""

CLASSES = 100
TRAIN_IMAGES, TEST_IMAGES = 50_000, 10_000
ARTICLE_VALID_IMAGES = 12_000  # a fifth of train and test pooled
ARTICLE_SPLIT_SEED = 42
