#!/usr/bin/env python3
"""An interpreter in which every engine is the fake server.

Name this file as a server's `python`: `-m MODULE …` starts the fake server, anything else the real
interpreter.
"""

import os
import sys
from pathlib import Path

if sys.argv[1] == "-m":
    script = str(Path(__file__).with_name("fake_server.py"))
    os.execv(sys.executable, [sys.executable, script, *sys.argv[3:]])
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
