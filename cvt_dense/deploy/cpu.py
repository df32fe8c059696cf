"""Describe the precisions that this CPU computes fast."""
import os
from pathlib import Path

# Linux's names of the features that decide how fast a precision is.
FEATURES = ('avx2', 'avx_vnni', 'avx512f', 'avx512_vnni', 'avx512_bf16', 'amx_bf16', 'amx_int8')
LIMIT = 'ONEDNN_MAX_CPU_ISA'  # environment variable that PyTorch and OpenVINO obey


def cpu_features(info: Path = Path('/proc/cpuinfo')) -> list[str]:
    """Return the entries of ``FEATURES`` that the CPU has, or none if the system does not report them."""
    lines = info.read_text().splitlines() if info.exists() else []
    flags = next((set(line.split(':', 1)[1].split()) for line in lines if line.startswith('flags')), set())
    return [name for name in FEATURES if name in flags]


def advice(features: list[str]) -> str:
    """Describe in one paragraph the CPU's features, of :func:`cpu_features`, and the precision to begin with."""
    limit = os.environ.get(LIMIT)
    has = f'This CPU has {", ".join(features) or "none of " + ", ".join(FEATURES)}'
    if limit:
        return (f'{has}; {LIMIT}={limit} limits PyTorch and OpenVINO, so these figures are those of another CPU: '
                'compare the precisions in them.')
    if 'amx_bf16' in features or 'avx512_bf16' in features:
        best = ('multiplies bfloat16 in hardware: begin with --precision bf16 in OpenVINO (.xml), which needs no '
                'calibration; int8 is for CPUs without it')
    elif 'avx512_vnni' in features or 'avx_vnni' in features:
        best = ('multiplies int8, but not bfloat16, in hardware: begin with --precision int8 in OpenVINO (.xml), and '
                'judge it by --evaluate')
    else:
        best = ('has no fast low precision: begin with --precision fp32 in OpenVINO (.xml); int8 products may overflow '
                'in it')
    return f'{has}; it {best}.'
