"""The controller: observe, detect, decide, write, report, again and again.

``launch`` starts it, ``wiring`` builds it (in earnest or as a dry run), ``leader`` leads or stands by, a
``leadership`` runs while we may write, a ``poller`` reads each source of Loki, and the ``reconciler`` turns
lines into writes.
"""
