"""The built-in schedules by name, as TOML (read by schedules.py)."""

from collections.abc import Mapping

# The schedule of one machine with 8 cards: cybertronai/imagenet18, train.py, and lambdal/imagenet18 for 8 Titan RTX.
TITAN_RTX = """
lr_batch = 4096

[[phase]]
epochs = [0, 13]
size = 128
copies = 160
batch = 512

[[phase]]
epochs = [13, 25]
size = 224
copies = 320
batch = 224
min_scale = 0.087

[[phase]]
epochs = [25, 28]
size = 288
batch = 128
min_scale = 0.5
rect_val = true

[[ramp]]
epochs = [0, 7]
lr = [1.0, 2.0]

[[ramp]]
epochs = [7, 13]
lr = [2.0, 0.25]

[[ramp]]
epochs = [13, 22]
lr = [1.0, 0.1]

[[ramp]]
epochs = [22, 25]
lr = [0.1, 0.01]

[[ramp]]
epochs = [25, 28]
lr = [0.01, 0.001]
"""

# A small version, to try it on a CPU with a few hundred images.
TINY = """
lr_batch = 128

[[phase]]
epochs = [0, 3]
size = 48
copies = 64
batch = 16

[[phase]]
epochs = [3, 5]
size = 64
copies = 96
batch = 12
min_scale = 0.087

[[phase]]
epochs = [5, 6]
size = 96
batch = 8
min_scale = 0.5
rect_val = true

[[ramp]]
epochs = [0, 2]
lr = [0.2, 0.4]

[[ramp]]
epochs = [2, 5]
lr = [0.4, 0.04]

[[ramp]]
epochs = [5, 6]
lr = [0.04, 0.004]
"""

# "Training ImageNet in Four Minutes" (Jia and others 2018, arXiv 1807.11205): 90 epochs in steps of 64K images, 32 for
# each of 2,048 cards. A warm-up (Goyal and others 2017, arXiv 1706.02677), then a polynomial of power 2 (You and others
# 2017, arXiv 1708.03888). The paper does not state its rates: this one is for LARS, and should be tuned (`lr`).
FOUR_MINUTES = """
lr_batch = 65536

[[phase]]
epochs = [0, 90]
size = 224
batch = 32

[[ramp]]
epochs = [0, 5]
lr = [0.0, 20.0]

[[ramp]]
epochs = [5, 90]
lr = [20.0, 0.0]
power = 2
"""

BUILT_IN: Mapping[str, str] = {"titan-rtx": TITAN_RTX, "tiny": TINY, "four-minutes": FOUR_MINUTES}
