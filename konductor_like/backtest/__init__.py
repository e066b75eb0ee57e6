"""Backtest: replays Loki's history through the controller's own reconciler, on a simulated clock.

Lines are read in windows proven complete; the reconciler detects, decides and writes as in a dry run. A
backtest assumes what a history does not contain; :class:`konductor_like.backtest.result.Result` lists this.
"""
