"""The command line, for people: ``konductor-like`` and ``kubectl konductor-like``."""

import os
import shlex
import signal
import sys
from contextlib import suppress


def main() -> int:
    """Run the console script and return its exit status."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # Ctrl-C during the imports shows no traceback
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from konductor_like.cli.app import execute

    signal.signal(signal.SIGINT, before)
    return execute(sys.argv[1:], sys.argv[0])


def kubectl_complete() -> int:
    """Complete ``kubectl konductor-like WORDS``; kubectl runs ``kubectl_complete-konductor_like`` for this.

    The completions are printed one a line, and then kubectl's code for "no names of files".
    """
    words = ["konductor-like", *sys.argv[1:]]
    os.environ |= {
        "_KONDUCTOR_LIKE_COMPLETE": "complete_bash",
        "COMP_WORDS": shlex.join(words),
        "COMP_CWORD": str(len(words) - 1),
    }
    sys.argv = [words[0]]
    main()
    from konductor_like.cli.output import close_quietly

    with suppress(BrokenPipeError):  # `… | head -1`
        sys.stdout.write(":4\n")
    close_quietly()
    return 0
