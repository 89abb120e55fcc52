"""What exists for a CPU's speed alone; without this folder everything runs, and is right, only slower on a CPU.

`encoder.side` loads `kernels` by the name in settings/registry.py, and nothing else imports anything from here.
"""
