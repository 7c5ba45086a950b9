"""Jobs that come as lines, with an engine's answers."""

import contextlib
import io
import json
import sys


def serve(accepted, answers):
    """Answers each job of standard input by a line, `{"why", "read"}`. What the engine prints meanwhile is dropped."""
    for line in sys.stdin:
        answer, said = {"why": None, "read": None}, io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            try:
                answer["read"] = accepted(json.loads(line))
            except Exception as why:
                answer["why"] = f"{type(why).__name__}: {why}"
        print(json.dumps(answer), file=answers, flush=True)
