#!/usr/bin/env python3
"""An interpreter in which every engine is the fake server.

Name this file as a server's `python`: `-m MODULE …` starts the fake server, and a program that asks
SGLang for its flags gets those recorded from 0.5.17 (or the version in the environment variable
FAKE_SGLANG_VERSION) with the fake server's own. Anything else goes to the real interpreter.
"""

import json
import os
import sys
from pathlib import Path

OPTIONS = Path(__file__).with_name("fixtures") / "sglang-0.5.17-options.json"
OWN_FLAGS = (
    "--speculative-ddtree-budget",
    "--speculative-ddtree-topk-cap",
    "--fault",
    "--fault-once",
    "--die-at-start",
    "--print-file",
    "--say",
    "--lie",
)


def known_flags() -> str:
    """The line that SGLang's flag probe waits for."""
    known = json.loads(OPTIONS.read_text(encoding="utf-8"))
    known["version"] = os.environ.get("FAKE_SGLANG_VERSION", known["version"])
    known["algorithms"] = [*known["algorithms"], "DDTREE"]
    own = [{"names": [name], "nargs": None, "choices": None} for name in OWN_FLAGS]
    known["options"] = [*known["options"], *own]
    return "ddtree-bench options: " + json.dumps(known)


if sys.argv[1] == "-m":
    script = str(Path(__file__).with_name("fake_server.py"))
    os.execv(sys.executable, [sys.executable, script, *sys.argv[3:]])
if "ServerArgs.add_cli_args" in sys.argv[2]:
    print(known_flags())
else:
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
