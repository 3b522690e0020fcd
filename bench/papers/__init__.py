"""Each paper beside ours: `python -m bench.papers dtdr|tgr|masstool|ports --data FOLDER [--queries FILE] [--json]`.

One module a paper. Each prints, for its data sets under FOLDER, the paper's figure, ours as published and ours as
served, on the queries of FILE (`dev.jsonl` unless given), with intervals, seeds, minutes and memory.
"""
