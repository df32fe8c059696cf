"""Wrong checkpoints end tools/train.py with one paragraph: as load_from before, as init_cfg when it loads."""
import pytest
import torch
from tiny_training import write_config

from cvt_dense.models import CvT, ImageClassifier

ARCH = dict(embed_dims=(8, 24, 48), depths=(1, 1, 1), num_heads=(1, 3, 6))


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp('train')
    write_config(folder)
    deeper = dict(ARCH, depths=(1, 2, 1))
    model = ImageClassifier(dict(type='cvt_dense.CvT', arch=deeper, out_type='cls_token'), num_classes=2)
    torch.save(model.state_dict(), folder / 'deeper.pth')
    (folder / 'truncated.pth').write_bytes((folder / 'deeper.pth').read_bytes()[:5000])
    detector = {f'backbone.{key}': value for key, value in CvT(ARCH).state_dict().items()}
    torch.save(dict(state_dict={**detector, 'neck.conv.weight': torch.zeros(1)}), folder / 'detector.pth')
    return folder


@pytest.mark.parametrize('setting, file, message', [
    ('load_from', 'truncated.pth', 'is not a complete checkpoint. The download was probably cut off'),
    ('load_from', 'detector.pth', "a detector's or segmentor's checkpoint"),
    ('model.init_cfg.checkpoint', 'deeper.pth', 'wrong arch, the file holds a CvT with embed_dims (8, 24, 48) and '
     'depths (1, 2, 1), the network is a CvT with embed_dims (8, 24, 48) and depths (1, 1, 1)'),
])
def test_one_paragraph(folder, run_tool, setting, file, message):
    options = [f'{setting}={folder / file}'] + (['model.init_cfg.type=Pretrained'] if 'init_cfg' in setting else [])
    output = run_tool('tools/train.py', folder / 'tiny.py', '--work-dir', folder / 'work', '--cfg-options', *options,
                      rc=2).stdout
    assert 'Traceback' not in output
    error = output.strip().splitlines()[-1]
    assert error.startswith('error: ') and file in error and message in error
