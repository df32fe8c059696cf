"""What readers lose of image files and label maps ends a run before it starts; the error names the file.

Each file of ``tests/data/images/VERDICT/KIND`` is a case: copies of it are the images or the label maps of a data set,
which is refused, accepted, or accepted with a line in the log.
"""
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
from launch.building import build_run, datasets
from load_tool import run_tool
from mmcv.transforms import LoadImageFromFile
from mmengine.config import Config
from mmseg.datasets.transforms import loading
from PIL import Image
from templates_edited import write_template
from tiny_training import write_config

from cvt_dense.errors import UserError
from cvt_dense.images import load, open_image

CASES = Path(__file__).parents[1] / 'data/images'
IMAGE, LABEL_MAP = CASES / 'accepted/rgb/colours.jpg', CASES / 'accepted/labels/grey.png'


def cases(verdict: str) -> Any:
    """Parametrize a test by the files of a verdict."""
    files = sorted((CASES / verdict).rglob('*.*'))
    return pytest.mark.parametrize('case', files, ids=[f'{file.parent.name}/{file.name}' for file in files])


def write(root: Path, image: Path = IMAGE, label_map: Path = LABEL_MAP, n: int = 3,
          size: tuple[int, int] | None = None) -> None:
    """Copy an image and its label map ``n`` times into each split, resized to a width and height if they are given."""
    for split in ('train', 'val'):
        for kind, file in (('images', image), ('labels', label_map)):
            (root / kind / split).mkdir(parents=True)
            for i in range(n):
                copy = shutil.copy(file, root / f'{kind}/{split}/im{i}{file.suffix}')
                if size:
                    Image.open(copy).resize(size, Image.Resampling.NEAREST).save(copy)


def template(root: Path, name: str = 'upernet_cvt13_custom', **lines: Any) -> Path:
    suffixes = tuple(next((root / f'{kind}/train').glob('*.*')).suffix for kind in ('images', 'labels'))
    small = dict(arch='cvt-nano', pretrained=None, image_size=64, max_iters=2, batch_size=2,
                 img_suffix__seg_map_suffix=suffixes)
    return write_template(root, name, data_root=f'{root}/', **small | lines)


def build(root: Path, options: dict[str, Any] | None = None, **lines: Any) -> dict[str, Any]:
    cfg = Config.fromfile(template(root, **lines))
    cfg.merge_from_dict(options or {})
    return datasets(build_run(cfg, 'train', 'val'))


LINES = dict(  # of the templates that read a kind of file
    rgb={}, labels=dict(classes=tuple(map(str, range(301)))),
    multichannel=dict(name='upernet_cvt13_multichannel', mean=(100., ) * 4, std=(50., ) * 4))


def build_case(root: Path, case: Path) -> dict[str, Any]:
    kind = case.parent.name
    if kind == 'multichannel' and not hasattr(loading, 'LoadImageFromNpyFile'):
        pytest.skip("upstream's MMSegmentation 1.2.2 reads no NumPy files")
    write(root, **{'label_map' if kind == 'labels' else 'image': case})
    return build(root, **LINES[kind])


def read(data_set: Any) -> np.ndarray:
    return data_set.pipeline.transforms[0](data_set.get_data_info(0))['img']


@cases('refused')
def test_files_that_would_mislead_are_refused_by_name(tmp_path, case):
    with pytest.raises(UserError, match=r'(images|labels)/train/im\d'):
        build_case(tmp_path, case)


@cases('accepted')
def test_files_are_read_as_they_are(tmp_path, case, capsys):
    data_set = build_case(tmp_path, case)['val']
    assert not re.search(r'im\d', capsys.readouterr().out)
    if case.parent.name == 'multichannel':
        assert (read(data_set) == (np.load(case) if case.suffix == '.npy' else tifffile.imread(case))).all()
    elif case.parent.name == 'rgb':
        assert abs(read(data_set)[..., ::-1].astype(int) - open_image(case)).mean() < 2
    labels = data_set[0]['data_samples'].gt_sem_seg.data[0].numpy()
    expected = np.asarray(Image.open(LABEL_MAP))
    assert (labels == expected)[labels != 255].all() and (labels != 255).sum() > 1000


@cases('noted')
def test_files_that_are_reduced_are_named(tmp_path, case, capsys):
    data_set = build_case(tmp_path, case)['val']
    assert f'im0{case.suffix}' in capsys.readouterr().out
    assert abs(read(data_set)[..., ::-1].astype(int) - open_image(case)).mean() < 2


OTHERS = dict(
    num_classes=(dict(), dict(classes=('road', )), {}),  # a single one
    image_size=(dict(size=(400, 12)), {}, {}),  # too thin
    seg_pad_val=(dict(size=(160, 24)), dict(augment='none'), {'model.decode_head.ignore_index': 0}),
    ignore_index=(dict(label_map=CASES / 'accepted/labels/ignored_rows.png'), {},
                      {'model.decode_head.ignore_index': 250}))


@pytest.mark.parametrize('name', OTHERS)
def test_settings_that_do_not_fit_the_files_are_refused(tmp_path, name):
    files, lines, options = OTHERS[name]
    write(tmp_path, **files)
    with pytest.raises(UserError, match=name):
        build(tmp_path, options, **lines)


def test_images_that_are_too_large_for_pillow_are_read(monkeypatch):
    monkeypatch.setattr(Image, 'MAX_IMAGE_PIXELS', 100)
    assert load(CASES / 'accepted/rgb/geotiff.tif', LoadImageFromFile()).shape == (48, 32, 3)


@pytest.mark.slow
def test_unreadable_images_are_skipped_and_counted(tmp_path):
    """In training another image takes the place, in an evaluation a black one whose label map is ignored."""
    write(tmp_path, n=4)
    for split, content in (('train', b''), ('val', b'no image')):
        (tmp_path / f'images/{split}/im1.jpg').write_bytes(content)
    config = template(tmp_path)
    output = run_tool('train', config, '--work-dir', tmp_path / 'run', rc=2)  # a quarter of the images
    assert 'im1.jpg' in output and 'unreadable_images' in output
    share = 'default_hooks.unreadable_images.max_share=0.5'
    output = run_tool('train', config, '--work-dir', tmp_path / 'run', '--val-loss', '--cfg-options', share)
    for split in ('train', 'val'):
        assert re.search(rf'{split}/im1.jpg \(', output) and re.search(rf'{split} .*read.*: 1\n', output)
    output = run_tool('test', config, tmp_path / 'run/iter_2.pth', '--tta', '--cfg-options', share)
    assert re.search(r'test .*read.*: 1\n', output) and 'mIoU' in output


def test_class_folders_of_sixteen_bits(tmp_path):
    """Twelve bits in sixteen would be read as 0 to 15."""
    config = write_config(tmp_path)
    for path in (tmp_path / 'data').rglob('*.png'):
        Image.fromarray(np.asarray(Image.open(path))[..., 0].astype(np.uint16) * 16).save(path)
    assert 'uint16' in run_tool('train', config, '--work-dir', tmp_path / 'run', rc=2)


def test_batch_norm_over_one_value_is_refused(tmp_path):
    write(tmp_path)
    assert 'batch_size' in run_tool('train', template(tmp_path, batch_size=1), '--work-dir', tmp_path / 'run', rc=2)
    assert not list(tmp_path.glob('run/*.pth'))
