"""The controller: it observes, detects, decides, writes and reports, again and again.

``launch`` starts it, ``wiring`` builds it (for a real run or a dry run), ``leader`` takes the Lease or stands
by, a ``leadership`` runs while the process has the Lease, a ``poller`` reads each source of Loki, and the
``reconciler`` turns lines into writes.
"""
