"""Measures what agents do with foretool's lists.

`python -m bench.agents` runs real coding agents with a stub in their model's place: it shows what these programs do.
`bench.agents.work` and `bench.agents.asking` have a real model and a plain loop around it: they show what a model does.
"""
