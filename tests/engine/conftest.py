"""A tiny random model with tokenizer and drafter on disk, and real server processes over it."""

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from ddtree.drafter import Drafter, DrafterConfig

SOURCE = Path(__file__).parents[2] / "src"
PATIENCE_S = 60.0
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
    "{% endfor %}<|im_start|>assistant\n"
)
VOCAB = 258
CONTEXT = 4096


def write_model(path: Path) -> Path:
    """Write a random Llama whose tokens are bytes and two special tokens."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=CONTEXT,
        initializer_range=0.4,
        bos_token_id=256,
        eos_token_id=257,
        tie_word_embeddings=True,
    )
    LlamaForCausalLM(config).save_pretrained(path)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens([AddedToken(t, special=True) for t in ("<|im_start|>", "<|im_end|>")])
    PreTrainedTokenizerFast(
        tokenizer_object=inner, eos_token="<|im_end|>", chat_template=TEMPLATE
    ).save_pretrained(path)
    return path


def write_drafter(path: Path) -> Path:
    """Write a random drafter of block size 6 for that model."""
    torch.manual_seed(1)
    values = {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "block_size": 6,
        "dflash_config": {"mask_token_id": 255, "target_layer_ids": [0, 2]},
        "hidden_size": 32,
        "intermediate_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "rms_norm_eps": 1e-6,
        "vocab_size": VOCAB,
        "num_target_layers": 3,
        "max_position_embeddings": CONTEXT,
        "rope_theta": 10000.0,
    }
    path.mkdir()
    (path / "config.json").write_text(json.dumps(values), encoding="utf-8")
    drafter = Drafter(DrafterConfig.model_validate(values), lambda x, positions: (x, x))
    save_file(drafter.state_dict(), path / "model.safetensors")
    return path


@dataclass
class Process:
    """One `python -m ddtree.server`; its output is read by a thread."""

    argv: list[str]
    environment: dict[str, str]
    lines: list[str] = field(default_factory=list)
    port: int | None = None
    grown: threading.Condition = field(default_factory=threading.Condition)
    ended: bool = False

    def __post_init__(self) -> None:
        self.child = subprocess.Popen(
            [sys.executable, "-m", "ddtree.server", *self.argv],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PYTHONPATH": str(SOURCE), **self.environment},
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.child.stdout is not None
        for line in self.child.stdout:
            if found := re.search(r"listening on http://127.0.0.1:(\d+)", line):
                self.port = int(found[1])
            self._grow(line)
        self._grow("", ended=True)

    def _grow(self, line: str, ended: bool = False) -> None:
        with self.grown:
            self.lines.append(line)
            self.ended = ended
            self.grown.notify_all()

    def wait_for_line(self, text: str) -> bool:
        """Whether a line with `text` comes before the output ends."""
        with self.grown:
            self.grown.wait_for(lambda: self.ended or text in self.output, PATIENCE_S)
            return text in self.output

    def client(self) -> httpx.Client:
        """HTTP client, once the server is ready."""
        assert self.wait_for_line("The server is fired up and ready to roll!"), self.output
        assert self.port is not None, self.output
        return httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=PATIENCE_S)

    def end(self, timeout_s: float = PATIENCE_S) -> int:
        """Exit code; raises TimeoutExpired if the process lives on."""
        code = self.child.wait(timeout_s)
        self._reader.join()
        assert self.child.stdout is not None
        self.child.stdout.close()
        return code

    @property
    def output(self) -> str:
        """All that it wrote, to stdout or stderr."""
        return "".join(self.lines)


@pytest.fixture(scope="session")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_model(tmp_path_factory.mktemp("model")))


@pytest.fixture(scope="session")
def drafter_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_drafter(tmp_path_factory.mktemp("drafter") / "checkpoint"))


@pytest.fixture
def start(model_path: str) -> Iterator[Callable[..., Process]]:
    """Starter of a server over the tiny model; killed after the test if it still runs."""
    started: list[Process] = []

    def run(*flags: str, **environment: str) -> Process:
        process = Process(["--model-path", model_path, *flags], environment)
        started.append(process)
        return process

    yield run
    for process in started:
        if process.child.returncode is None:
            process.child.kill()
            process.end()
