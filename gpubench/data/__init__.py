"""Training data: datasets and their cache, trees of images, word corpora, schedules of image sizes.

Suites load data from here; the runner checks that it is available. Imports no package of gpubench, and never torch.
"""
