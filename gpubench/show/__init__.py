"""Faces: what a person sees of findings. They know findings and nothing of the rows behind them."""
