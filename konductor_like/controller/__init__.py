"""The controller: observe, detect, decide, act, report, again and again.

``launch`` starts it, ``wiring`` builds it (in earnest or as a dry run), ``controller`` leads or stands by,
a ``term`` runs while we may write, ``sources`` read Loki each in a thread of its own, and one ``tick`` turns
lines into writes.
"""
