"""Runs inside training: samples NVML, marks steps, takes profiles, and never gets in training's way."""
