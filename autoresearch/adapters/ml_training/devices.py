"""Which device is there, and how fast it could be at best. Importing this does not import torch."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from autoresearch.core.errors import EnvironmentNotReadyError, UsageError

PEAK_BF16_FLOPS: Final[dict[str, float]] = {
    "B200": 2.25e15,
    "H200": 989e12,
    "H100 NVL": 835e12,
    "H100 PCIe": 756e12,
    "H100": 989e12,
    "A100": 312e12,
    "L40S": 362e12,
    "L40": 181e12,
    "L4": 121e12,
    "A10G": 70e12,
    "A10": 125e12,
    "RTX 6000 Ada": 364e12,
    "RTX 5090": 209.5e12,
    "RTX 4090": 165.2e12,
    "RTX 3090": 71e12,
}
"""Peak of dense bfloat16 matrix products with float32 sums, in operations per second, by a part of the device's name.

Longer names come first, so that `H100 PCIe` is not taken for `H100`. Source: NVIDIA's data sheets of these products
and, for GeForce cards, the appendices of the Ampere, Ada and Blackwell architecture papers; figures with sparsity are
halved.
"""


_GPU_NODES: Final = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg", "/dev/kfd", "/dev/nvhost-ctrl", "/dev/nvgpu")
"""Without any of these Linux offers torch no GPU: NVIDIA, WSL, AMD, and NVIDIA's boards in turn."""


def require_torch() -> None:
    """Raise EnvironmentNotReadyError when a package that training needs is missing."""
    for module in ("torch", "numpy", "safetensors"):
        if find_spec(module) is None:
            raise EnvironmentNotReadyError(
                f"The ml adapter trains with torch, and the package {module} is not installed.\n"
                "Install it with: pip install 'autoresearch[ml]' "
                "(processor only, smaller: first pip install torch from PyTorch's cpu index)"
            )


def best_device() -> str:
    """Return `cuda`, `mps` or `cpu`: the fastest that torch can use here."""
    require_torch()
    if "torch" not in sys.modules and _linux_without_gpu():
        # Saves importing torch, 1.5 s at the start of every command, where the answer is known without it.
        return "cpu"
    import torch

    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def _linux_without_gpu() -> bool:
    return sys.platform == "linux" and not any(Path(node).exists() for node in _GPU_NODES)


def demand_device(device: str, preset: str) -> None:
    """Check that torch can use a device.

    Raises:
        UsageError: If there is no such kind of device.
        EnvironmentNotReadyError: If it is not there.
    """
    kind, _, index = device.partition(":")
    if kind not in ("cpu", "cuda", "mps") or (index and not index.isdigit()):
        raise UsageError(f"There is no device {device!r}; known are cpu, cuda, cuda:N and mps.")
    require_torch()
    if kind == "cpu":
        return
    import torch

    if kind == "cuda" and not torch.cuda.is_available():
        raise EnvironmentNotReadyError(
            f"No CUDA device is visible, and preset {preset} needs one.\n"
            "Set CUDA_VISIBLE_DEVICES, or train on the processor: autoresearch run --adapter ml --preset cpu"
        )
    if kind == "cuda" and int(index or 0) >= torch.cuda.device_count():
        raise EnvironmentNotReadyError(
            f"There is no device {device}: torch sees {torch.cuda.device_count()} CUDA devices, counted from 0.\n"
            "Name another with --device, or set CUDA_VISIBLE_DEVICES."
        )
    if kind == "mps" and not torch.backends.mps.is_available():
        raise EnvironmentNotReadyError(
            f"torch cannot use Apple's GPU here, and preset {preset} needs it.\n"
            "Train on the processor instead: autoresearch run --adapter ml --preset cpu"
        )


def memory_gb(device: str) -> float:
    """Return the memory of a CUDA device in GB (1e9 bytes)."""
    import torch

    return float(torch.cuda.get_device_properties(torch.device(device)).total_memory) / 1e9


def device_name(device: str) -> str | None:
    """Return the product name of a CUDA device; None for others."""
    import torch

    return torch.cuda.get_device_name(torch.device(device)) if device.startswith("cuda") else None


def peak_flops(name: str | None) -> float | None:
    """Return the bfloat16 peak of a device by its product name; None where it is not known.

    Example:
        >>> peak_flops("NVIDIA H100 80GB HBM3")
        989000000000000.0
        >>> peak_flops("Some future card") is None
        True
    """
    if name is None:
        return None
    return next((flops for part, flops in PEAK_BF16_FLOPS.items() if part in name), None)
