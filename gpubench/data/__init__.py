"""What a training reads: datasets and their cache, trees of images, word corpora, schedules of image sizes.

Imports no other room, and never torch. Suites load from here, and what plans a run asks whether the data is there.
"""
