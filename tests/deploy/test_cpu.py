"""What a CPU has decides which precision is recommended for it."""
import pytest

from cvt_dense.deploy.cpu import LIMIT, advice, cpu_features


@pytest.mark.parametrize('flags, features, best', [
    ('fpu avx2 avx512f avx512_vnni amx_bf16 amx_int8', ['avx2', 'avx512f', 'avx512_vnni', 'amx_bf16', 'amx_int8'],
     '--precision bf16 in OpenVINO'),
    ('fpu avx2 avx_vnni', ['avx2', 'avx_vnni'], '--precision int8 in OpenVINO'),
    ('fpu avx2', ['avx2'], '--precision fp32 in OpenVINO'),
    ('fpu', [], 'This CPU has none of avx2, ')])
def test_advice(tmp_path, monkeypatch, flags, features, best):
    monkeypatch.delenv(LIMIT, raising=False)
    (tmp_path / 'cpuinfo').write_text(f'processor\t: 0\nflags\t\t: {flags}\nbugs\t\t: x\n\nprocessor\t: 1\n')
    assert cpu_features(tmp_path / 'cpuinfo') == features and best in advice(features)
    monkeypatch.setenv(LIMIT, 'AVX2')
    assert f'{LIMIT}=AVX2 limits PyTorch and OpenVINO' in advice(features) and 'begin with' not in advice(features)


def test_a_system_that_does_not_say(tmp_path):
    assert cpu_features(tmp_path / 'cpuinfo') == []
