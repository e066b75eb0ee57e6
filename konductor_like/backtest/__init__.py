"""Backtest: Loki's history through the controller's own reconciler, on a simulated clock.

Lines are read in windows proven complete; the reconciler detects, decides and writes as in a dry run. What a
history cannot tell is assumed, and :class:`konductor_like.backtest.result.Result` says so.
"""
