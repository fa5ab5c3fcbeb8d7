"""How many images there are, and how the article divided them."""

CLASSES = 100
TRAIN_IMAGES, TEST_IMAGES = 50_000, 10_000
ARTICLE_VALID_IMAGES = 12_000  # a fifth of train and test pooled
ARTICLE_SPLIT_SEED = 42
