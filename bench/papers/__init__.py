"""Compares each paper's method with its paper: `python -m bench.papers dtdr|tgr|masstool|ports --data FOLDER [...]`.

There is one module per paper. Each prints, for its data sets under FOLDER, the paper's figures, ours as published and
ours as served, on the queries of FILE (`dev.jsonl` unless given), with intervals, seeds, minutes and memory. A key that
ends in `_interval` is the 95 % interval of the figure before it.
"""
