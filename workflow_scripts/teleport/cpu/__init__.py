"""What exists for a CPU's speed alone; without this folder everything runs, and is right, only slower on a CPU.

`on_cpu.cpu_module` loads a module by the name in settings/registry.py, and nothing else imports anything from here.
"""
