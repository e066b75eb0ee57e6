"""Backtest: Loki's history through the same detection and the same decision, on a simulated clock.

There is no second path: lines are read in windows proven complete, ``detection`` finds, ``policy.decide``
decides. What a history cannot tell is assumed, and :class:`konductor_like.backtest.values.Result` says so.
"""
