"""The typed configuration of a run."""

from ddtree_bench.config.load import load_config
from ddtree_bench.config.model import Config
from ddtree_bench.config.protocol import Analysis, Limits, Protocol, Warmup
from ddtree_bench.config.server import Server
from ddtree_bench.config.workload import CLASSES, DRAWN, FILLING, FIXED_LENGTH, Workload

__all__ = [
    "CLASSES",
    "DRAWN",
    "FILLING",
    "FIXED_LENGTH",
    "Analysis",
    "Config",
    "Limits",
    "Protocol",
    "Server",
    "Warmup",
    "Workload",
    "load_config",
]
