"""`python -m ddtree.server`."""

import logging
import os
import sys

from ddtree.server.cli import main

code = main()
logging.shutdown()
sys.stdout.flush()
sys.stderr.flush()
# Not sys.exit: taking torch down lasts a second or more, and could crash in a forward pass that
# is still running. Nothing is left to write.
os._exit(code)
