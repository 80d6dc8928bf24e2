"""How SGLang finds the plug-in, and the hooks on its arguments; needs torch, not SGLang."""

import importlib
import sys
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="the stand-ins are torch code")

from sglang_cpu_check import kernels, plugin  # noqa: E402 - after the check for torch

SITE = Path(plugin.__file__).parent / "site"


@pytest.fixture
def sgl_kernel(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The stand-in package, first on the path as it is in a server."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "sgl_kernel"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(SITE)
    module = importlib.import_module("sgl_kernel")
    for name in ("sgl_kernel", "sgl_kernel.speculative"):
        monkeypatch.setitem(sys.modules, name, importlib.import_module(name))
    return module


def test_the_stand_in_package_offers_the_kernels(sgl_kernel: ModuleType) -> None:
    """What SGLang imports from `sgl_kernel` are our functions."""
    assert Path(sgl_kernel.__file__).is_relative_to(SITE)
    assert sgl_kernel.verify_tree_greedy_cpu is kernels.verify_tree_greedy_cpu
    speculative = sys.modules["sgl_kernel.speculative"]
    reconstruct = speculative.reconstruct_indices_from_tree_mask
    assert reconstruct is kernels.reconstruct_indices_from_tree_mask


def test_a_missing_kernel_is_an_import_error(sgl_kernel: ModuleType) -> None:
    """SGLang falls back where it can (`except ImportError`); a silent stub would hide that."""
    with pytest.raises(AttributeError):
        sgl_kernel.rmsnorm  # noqa: B018 - the access is the test


@pytest.mark.parametrize(
    "name", ["assign_draft_cache_locs_contiguous_cpu", "build_tree_kernel_efficient_cpu"]
)
def test_eagles_kernels_can_be_imported_but_not_called(name: str, sgl_kernel: ModuleType) -> None:
    """SGLang imports them whatever the algorithm; a call says what does not run here."""
    with pytest.raises(NotImplementedError, match="EAGLE"):
        getattr(sgl_kernel, name)(1, 2)


def test_sglang_finds_the_plugin_by_its_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    """The metadata beside the stand-in lead SGLang to `register`."""
    monkeypatch.syspath_prepend(SITE)
    [entry] = [e for e in entry_points(group="sglang.srt.plugins") if e.name == "sglang_cpu_check"]
    assert entry.load() is plugin.register


def test_every_hook_is_registered_around_its_target(monkeypatch: pytest.MonkeyPatch) -> None:
    """`register` hands every hook to SGLang's registry (a fake one here)."""
    seen = {}
    registry = ModuleType("sglang.srt.plugins.hook_registry")
    registry.HookType = SimpleNamespace(AROUND="around")
    registry.HookRegistry = SimpleNamespace(
        register=lambda target, hook, kind: seen.update({target: (hook, kind)})
    )
    for name in ("sglang", "sglang.srt", "sglang.srt.plugins"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, registry.__name__, registry)
    plugin.register()
    assert seen == {target: (hook, "around") for target, hook in plugin.HOOKS.items()}


def test_dflash_arguments_are_checked_as_if_on_an_npu() -> None:
    """Stock sees a device that it allows; afterwards the device is the CPU again."""
    arguments = SimpleNamespace(device="cpu")
    seen = []
    plugin.dflash_arguments(lambda given: seen.append(given.device), arguments)
    assert (seen, arguments.device) == (["npu"], "cpu")


def test_the_device_is_restored_if_stock_refuses_the_arguments() -> None:
    """An argument error of stock passes through and leaves no false device behind."""

    def refuse(_: object) -> None:
        raise ValueError("no drafter")

    arguments = SimpleNamespace(device="cpu")
    with pytest.raises(ValueError, match="no drafter"):
        plugin.dflash_arguments(refuse, arguments)
    assert arguments.device == "cpu"


def test_the_drafter_gets_the_backend_of_the_target() -> None:
    """Both places where stock chooses the drafter's backend give the same one."""
    arguments = SimpleNamespace(speculative_draft_attention_backend=None)
    plugin.draft_backend_argument(pytest.fail, arguments)
    assert arguments.speculative_draft_attention_backend == "torch_native"
    assert plugin.draft_backend(pytest.fail, algo_label="DFLASH") == "torch_native"


def test_streams_are_recorded_for_gpu_tensors_only() -> None:
    """A CPU tensor is left alone; any other reaches torch's own method."""
    calls = []
    plugin.record_stream(lambda *given: calls.append(given), torch.zeros(1), "stream")
    assert calls == []
    on_gpu = SimpleNamespace(is_cuda=True)
    plugin.record_stream(lambda *given: calls.append(given), on_gpu, "stream")
    assert calls == [(on_gpu, "stream")]
