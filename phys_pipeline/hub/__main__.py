"""The process of :class:`phys_pipeline.hub.worker.Hub`: an operation a line from standard input, an answer a line to standard
output; it ends with its parent."""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

from phys_pipeline.errors import HubError
from phys_pipeline.hub.operations import perform


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent too, which ends this process
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    for line in sys.stdin:
        operation, arguments = json.loads(line)
        answer: dict[str, Any]
        try:
            answer = {"result": perform(operation, arguments)}
        except HubError as error:
            answer = {"error": [str(error), error.kind, error.wait]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
