"""Campaigns: the ASA paper's evaluation done anew, and every way of asking under every scheduler.

`paper`, with `paper_cells` and `paper_results`, and `schedulers` say what is run, run it, and work out what came of it.
What the paper printed is in `published`, and by which rule the two are held side by side in `verdicts`.
"""
