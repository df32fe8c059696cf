"""What readers lose of image files and label maps ends a run before it starts; the error names the file."""
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import rasterio
import tifffile
from load_tool import run_tool
from mmengine.config import Config
from mmengine.registry import init_default_scope
from PIL import Image
from templates_edited import write_template
from tiny_training import write_config

from cvt_dense.errors import UserError
from cvt_dense.images import explain_loss, read_header
from cvt_dense.launch.build import load_datasets
from cvt_dense.launch.checks.config import check_config

Writer = Callable[[np.ndarray, str], Any]
SIZE = 96, 64


def jpeg(pixels: np.ndarray, path: str) -> None:
    Image.fromarray(pixels).save(f'{path}.jpg')


def tiff(change: Callable[[np.ndarray], np.ndarray], **options: Any) -> Writer:
    return lambda pixels, path: tifffile.imwrite(f'{path}.tif', change(pixels), **options)


def png(change: Callable[[np.ndarray], np.ndarray] = np.array, **options: Any) -> Writer:
    return lambda labels, path: Image.fromarray(change(labels)).save(f'{path}.png', **options)


def turned(orientation: int) -> Writer:
    def write(pixels: np.ndarray, path: str) -> None:
        image = Image.fromarray(pixels)
        image.getexif()[0x112] = orientation
        image.save(f'{path}.jpg', exif=image.getexif())
    return write


def geotiff(pixels: np.ndarray, path: str) -> None:
    """Write RGB and near infrared, which GDAL marks as alpha."""
    size = dict(width=SIZE[1], height=SIZE[0], count=4)
    with rasterio.open(f'{path}.tif', 'w', driver='GTiff', dtype='uint8', **size) as file:
        file.write(np.dstack([pixels, np.full(SIZE, 51, np.uint8)]).transpose(2, 0, 1))


def write(root: Path, image: Writer = jpeg, label: Writer = png(), size: tuple[int, int] = SIZE, n: int = 3) -> None:
    """Write images with a dark rectangle, and label maps in which it is class 1."""
    rng = np.random.default_rng(0)
    for split in ('train', 'val'):
        for kind in ('images', 'labels'):
            (root / kind / split).mkdir(parents=True)
        for i in range(n):
            pixels, labels = rng.integers(90, 255, (*size, 3), dtype=np.uint8), np.zeros(size, np.uint8)
            labels[4:size[0] // 2 + i, size[1] // 4:size[1] // 2] = 1
            pixels[labels == 1] //= 4
            image(pixels, f'{root}/images/{split}/im{i}'), label(labels, f'{root}/labels/{split}/im{i}')


def template(root: Path, name: str = 'upernet_cvt13_custom', **lines: Any) -> Path:
    suffix = next((root / 'images/train').glob('*.*')).suffix
    small = dict(arch='cvt-nano', pretrained=None, image_size=64, max_iters=2, batch_size=2,
                 img_suffix__seg_map_suffix=(suffix, '.png'))
    return write_template(root, name, data_root=f'{root}/', **small | lines)


def build(root: Path, options: dict[str, Any] | None = None, **lines: Any) -> dict[str, Any]:
    cfg = Config.fromfile(template(root, **lines))
    cfg.merge_from_dict(options or {})
    init_default_scope('mmseg')
    check_config(cfg, ('train', 'val'))
    return load_datasets(cfg, ('train', 'val'))


GREY = dict(photometric='minisblack')
MULTI = dict(name='upernet_cvt13_multichannel')
FOUR = dict(MULTI, mean=(100., ) * 4, std=(50., ) * 4)
REFUSED = dict(
    signed=(dict(image=tiff(lambda a: a[..., 0].astype(np.int16) - 100)), {}, 'int16'),
    floats=(dict(image=tiff(lambda a: a[..., 0].astype(np.float32))), {}, 'float32'),
    wide=(dict(image=tiff(lambda a: a[..., 0].astype(np.uint32))), {}, 'uint32'),
    twelve_bits=(dict(image=tiff(lambda a: a[..., 0].astype(np.uint16) * 16)), {}, '4064|40[0-9][0-9]'),
    twelve_bits_png=(dict(image=png(lambda a: a[..., 0].astype(np.uint16) * 16)), {}, 'uint16'),
    alpha=(dict(image=geotiff), {}, 'imdecode_backend'),
    bands=(dict(image=tiff(lambda a: np.dstack([a, a]), planarconfig='contig', **GREY)), {}, 'tif'),
    pages=(dict(image=tiff(lambda a: np.stack([a[..., 0]] * 2), **GREY)), {}, 'tif'),
    jpeg_2000=(dict(image=lambda a, p: cv2.imwrite(f'{p}.jp2', a[..., 0].astype(np.uint16) << 4)), {}, 'uint16'),
    gif=(dict(image=lambda a, p: Image.fromarray(a).save(f'{p}.gif')), {}, 'gif'),
    channels_first=(dict(image=tiff(lambda a: np.dstack([a, a[..., :1]]).transpose(2, 0, 1).copy(), **GREY)), FOUR,
                    'channels'),
    channels=(dict(image=tiff(lambda a: np.dstack([a, a[..., :2]]), planarconfig='contig', **GREY)), FOUR, 'mean'),
    nan=(dict(image=tiff(lambda a: np.where(a < 95, np.nan, a).astype(np.float32), planarconfig='contig', **GREY)),
         dict(MULTI, mean=(1., ) * 3, std=(1., ) * 3), 'NaN'),
    unreadable=(dict(image=lambda a, p: Path(f'{p}.jpg').write_bytes(b'')), {}, 'im0.jpg'),
    high_labels=(dict(label=png(lambda a: a.astype(np.uint16) * 300)), {}, 'labels.*300'),
    low_bits=(dict(label=png(lambda a: a, bits=2)), dict(classes=tuple(map(str, range(100)))), 'labels.*uint2'),
    other_size=(dict(label=png(lambda a: a[1:])), {}, 'labels/train'),
    quarter_turn=(dict(image=turned(6)), {}, 'labels.*EXIF'),
    damaged_label=(dict(label=lambda a, p: Path(f'{p}.png').write_bytes(b'x')), {}, 'labels'),
    single_class=(dict(), dict(classes=('road', )), 'out_channels'),
    jpeg_labels=(dict(label=jpeg), dict(img_suffix__seg_map_suffix=('.jpg', '.jpg')), 'labels.*JPEG'),
    padding=(dict(size=(24, 160)), dict(augment='none', options={'model.decode_head.ignore_index': 0}), 'seg_pad_val'),
    one_head_ignores=(dict(label=png(lambda a: a * 250)), dict(options={'model.decode_head.ignore_index': 250}), '250'),
    thin=(dict(size=(12, 400)), {}, 'im.*jpg'))


@pytest.mark.parametrize('name', REFUSED)
def test_images_that_would_mislead_are_refused(tmp_path, name):
    files, lines, named = REFUSED[name]
    write(tmp_path, **files)
    with pytest.raises(UserError, match=named):
        build(tmp_path, **lines)


READ = dict(
    alpha_by_pillow=(geotiff, {'train_dataloader.dataset.pipeline.0.imdecode_backend': 'pillow',
                               'val_dataloader.dataset.pipeline.0.imdecode_backend': 'pillow'}, '4 channels of uint8'),
    sixteen_bits=(tiff(lambda a: a[..., 0].astype(np.uint16) * 257), {}, 'uint16.*8 bits'),
    half_turn=(turned(3), {}, '3 of 3 .*EXIF'),
    ignored_class=(jpeg, {'model.decode_head.ignore_index': 0, 'model.auxiliary_head.ignore_index': 0,
                          'model.data_preprocessor.seg_pad_val': 0}, '0, 255'))


@pytest.mark.parametrize('name', READ)
def test_read_with_a_word(tmp_path, capsys, name):
    image, options, said = READ[name]
    write(tmp_path, image)
    sample = build(tmp_path, options)['val'][0]
    assert sample['inputs'].float().std() > 30 and re.search(said, capsys.readouterr().out)


def test_classes_without_pixels_and_shifted_label_maps_are_named(tmp_path, capsys):
    write(tmp_path, label=png(lambda a: a + 1))
    build(tmp_path, {'train_dataloader.dataset.reduce_zero_label': True}, classes=('road', 'car', 'kerb'))
    printed = capsys.readouterr().out
    assert 'reduce_zero_label' in printed and "'kerb'" in printed


def test_headers_follow_the_content(tmp_path):
    array = np.full((8, 8, 3), 200, np.uint8)
    Image.fromarray(array).save(tmp_path / 'a.png')
    (tmp_path / 'a.png').rename(tmp_path / 'a.tif')
    tifffile.imwrite(tmp_path / 'b.png', array.astype(np.float32), photometric='rgb')
    Image.fromarray(array).save(tmp_path / 'c.gif', save_all=True, append_images=[Image.fromarray(array // 2)])
    a, b, c = (read_header(tmp_path / name) for name in ('a.tif', 'b.png', 'c.gif'))
    assert (a.format, a.size, a.channels) == ('PNG', (8, 8), 3) and (b.format, b.dtype) == ('TIFF', 'float32')
    assert c.layout == 'frames' and 'first frame' in explain_loss(c)[1]


def test_arrays_of_many_pages_are_read(tmp_path):
    """tifffile writes an array (H, W, 6) as H pages, unless it is told otherwise, and reads it back."""
    write(tmp_path, tiff(lambda a: np.dstack([a, a]).astype(np.uint16)))
    assert build(tmp_path, **MULTI, mean=(1., ) * 6, std=(1., ) * 6)['val'][0]['inputs'].shape == (6, *SIZE)


def test_palettes_of_few_bits_are_class_numbers(tmp_path):
    def palette(labels: np.ndarray, path: str) -> None:
        image = Image.fromarray(labels, 'P')
        image.putpalette([0, 0, 0, 255, 0, 0])
        image.save(f'{path}.png', bits=1)

    write(tmp_path, label=palette)
    assert build(tmp_path)['train'][0]['data_samples'].gt_sem_seg.data.unique().tolist() == [0, 1]


def test_hidden_files_are_no_data(tmp_path):
    write(tmp_path)
    for kind, suffix in (('images', '.jpg'), ('labels', '.png')):
        for folder in ('.ipynb_checkpoints', '__MACOSX'):
            hidden = tmp_path / kind / 'train' / folder
            hidden.mkdir()
            (hidden / f'im0{suffix}').write_bytes((tmp_path / kind / f'train/im0{suffix}').read_bytes())
    assert len(build(tmp_path)['train']) == 3


def test_unreadable_images_are_skipped_and_counted(tmp_path):
    """In training another image takes the place, in an evaluation a black one whose label map is ignored."""
    write(tmp_path, n=4)
    for split, content in (('train', b''), ('val', b'no image')):
        (tmp_path / f'images/{split}/im1.jpg').write_bytes(content)
    config = template(tmp_path, max_iters=6)
    output = run_tool('train', config, '--work-dir', tmp_path / 'run', rc=2)  # a quarter of the images
    assert 'im1.jpg' in output and 'unreadable_images' in output
    share = 'default_hooks.unreadable_images.max_share=0.5'
    output = run_tool('train', config, '--work-dir', tmp_path / 'run', '--val-loss', '--cfg-options', share)
    for split in ('train', 'val'):
        assert re.search(rf'{split}/im1.jpg \(', output) and f'1 images for {split} could not be read' in output
    output = run_tool('test', config, tmp_path / 'run/iter_6.pth', '--tta', '--cfg-options', share)
    assert '1 images for test could not be read' in output and 'mIoU' in output


def test_test_batches_of_several_sizes(tmp_path):
    write(tmp_path)
    jpeg(np.full((80, 64, 3), 200, np.uint8), f'{tmp_path}/images/val/im0')
    png()(np.zeros((80, 64), np.uint8), f'{tmp_path}/labels/val/im0')
    build(tmp_path)
    with pytest.raises(UserError, match='val_dataloader.*batch_size'):
        build(tmp_path, {'val_dataloader.batch_size': 2})


def test_class_folders_of_few_images_and_of_sixteen_bits(tmp_path):
    """Twelve bits in sixteen would be read as 0 to 15."""
    command = 'train', write_config(tmp_path), '--work-dir', tmp_path / 'run'
    assert 'batch_size' in run_tool(*command, '--cfg-options', 'train_dataloader.batch_size=37', rc=2)
    for path in (tmp_path / 'data').rglob('*.png'):
        Image.fromarray(np.asarray(Image.open(path))[..., 0].astype(np.uint16) * 16).save(path)
    assert 'uint16' in run_tool(*command, rc=2)


def test_batch_norm_over_one_value(tmp_path):
    write(tmp_path)
    assert 'batch_size' in run_tool('train', template(tmp_path, batch_size=1), '--work-dir', tmp_path / 'run', rc=2)
    assert not list(tmp_path.glob('run/*.pth'))
