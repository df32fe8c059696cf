"""The subcommands of tools/benchmark.py, a file each, and what they measure with."""
