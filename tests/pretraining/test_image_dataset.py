"""ImageDataset: its layouts, what it makes of an image, and images that cannot be read."""
import io
import pickle
import random
import shutil
import tarfile
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch
from mmengine.registry import DATASETS, FUNCTIONS
from PIL import Image
from torch.utils.data import DataLoader

from cvt_dense.annotations import convert
from cvt_dense.engine import SeededSampler
from cvt_dense.engine.samplers import SeededIndex, seeded_samples, use_seeds
from cvt_dense.images import open_image
from cvt_dense.pretraining import ImageDataset

TRAIN = dict(input_size=24, is_training=True, auto_augment='rand-m9-mstd0.5-inc1', interpolation='bicubic')
CLASSES = ('Bengal', 'Siamese', 'beagle')  # sorted without case, or naturally, beagle would be first


def seeded(dataset, index, seed):
    return seeded_samples(dataset, [SeededIndex(index, seed)])[0]


@pytest.fixture
def root(tmp_path):
    rng = np.random.default_rng(0)
    for split in ('train', 'val'):
        for name in CLASSES:
            (tmp_path / split / name).mkdir(parents=True)
            for j in range(4):
                image = Image.fromarray(rng.integers(0, 256, (30, 40, 3), dtype=np.uint8))
                image.save(tmp_path / split / name / f'{name}_{j}.{"JPEG" if j else "png"}')
    (tmp_path / 'meta').mkdir()
    lines = [f'{p.relative_to(tmp_path / "val")} {i // 4}'
             for i, p in enumerate(sorted((tmp_path / 'val').rglob('*.*')))]
    (tmp_path / 'meta/val.txt').write_text('\n'.join(lines) + '\n')
    return tmp_path


def pack(folder: Path, tar_file: Path, arcname: str) -> Path:
    with tarfile.open(tar_file, 'w') as tar:
        tar.add(folder, arcname)
    return tar_file


# -- layouts ---------------------------------------------------------------------------------------


def test_class_folders(root, capsys):
    (root / 'train/Bengal/notes.txt').write_text('not an image')
    Image.new('RGB', (40, 30)).save(root / 'train/loose.png')
    for suffix in ('webp', 'bmp', 'tif', 'jfif'):
        Image.new('RGB', (40, 30)).save(root / f'train/Siamese/Siamese_{suffix}.{suffix}')
    dataset = ImageDataset(str(root), 'train', transform=dict(input_size=24))
    assert dataset.metainfo['classes'] == CLASSES and 'loose.png' in capsys.readouterr().out
    assert [dataset[i]['labels'] for i in range(len(dataset))] == [0] * 4 + [1] * 8 + [2] * 4
    sample = dataset[5]
    assert sample['inputs'].shape == (3, 24, 24) and sample['inputs'].dtype == torch.uint8 and not sample['unreadable']
    assert sample['paths'].endswith('/train/Siamese/Siamese_1.JPEG')
    for name in ('__MACOSX', '@eaDir'):
        (root / 'train' / name).mkdir()
        shutil.copy(root / 'train/loose.png', root / 'train' / name)
    with pytest.raises(ValueError, match='@eaDir, __MACOSX'):
        ImageDataset(str(root), 'train', transform=dict(input_size=24))
    with pytest.raises(ValueError, match='parts'):
        ImageDataset(str(root), '', transform=dict(input_size=24))
    for name in ('void', 'background'):  # which may be a class of its own
        (root / 'val/beagle').rename(root / 'val' / name)
        with pytest.raises(ValueError, match=r'void\.') if name == 'void' else nullcontext():
            ImageDataset(str(root), 'val', transform=dict(input_size=24))
        shutil.move(root / 'val' / name, root / 'val/beagle')
    (root / 'val/beagle').rename(root / 'val/void')  # that a user names is one
    ImageDataset(str(root), 'val', transform=dict(input_size=24), metainfo=dict(classes=(*CLASSES, 'void')))


@pytest.mark.parametrize('layout', ['list', 'tar', 'tar file per class'])
def test_every_layout_gives_the_same_samples(root, layout):
    """The numbers of the classes, the order of the images and their pixels."""
    options = dict(transform=dict(input_size=24), num_classes=3)
    folders = ImageDataset(str(root), 'val', **options)
    if layout == 'list':
        other = ImageDataset(str(root), 'val', ann_file='meta/val.txt', **options)
    else:
        (root / 'shards').mkdir()
        pack(root / 'val', root / 'shards.tar', './val')
        for name in CLASSES:
            pack(root / 'val' / name, root / f'shards/{name}.tar', '')
        before = sorted(root.rglob('*'))
        other = ImageDataset(str(root), 'shards.tar' if layout == 'tar' else 'shards', **options)
        assert other.metainfo['classes'] == CLASSES
        assert sorted(root.rglob('*')) == before  # nothing is written beside the data
    assert len(other) == len(folders) == 12
    for a, b in zip(other, folders):
        assert torch.equal(a['inputs'], b['inputs']) and a['labels'] == b['labels']
        assert Path(a['paths']).name == Path(b['paths']).name and not a['unreadable']


def write_shard(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, 'w') as tar:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


def test_webdataset_shards(root):
    """Twelve images of classes 0, 4 and 10 in three shards, with members in both orders."""
    images = [path.read_bytes() for path in sorted((root / 'val').rglob('*.*'))]
    (root / 'shards').mkdir()
    for shard in range(3):
        members = {}
        for number in range(shard, 12, 3):
            pair = {f'{number:04}.cls': b'%d\n' % (0, 4, 10)[number // 4], f'{number:04}.jpg': images[number]}
            members.update(reversed(pair.items()) if shard else pair)
        write_shard(root / f'shards/train-{shard}.tar', members)
    dataset = ImageDataset(str(root), 'shards', transform=dict(input_size=24), num_classes=11)
    folders = ImageDataset(str(root), 'val', transform=dict(input_size=24))
    assert dataset.metainfo['classes'] == tuple(map(str, range(11))) and len(dataset) == 12
    samples = {sample['paths'][-8:-4]: sample for sample in dataset}
    for number, expected in enumerate(folders):
        sample = samples[f'{number:04}']
        assert torch.equal(sample['inputs'], expected['inputs']) and sample['labels'] == (0, 4, 10)[expected['labels']]
    write_shard(root / 'other.tar', {'0.jpg': images[0], '0.json': b'{}'})  # whose name is no class
    with pytest.raises(ValueError, match='another file'):
        ImageDataset(str(root), 'other.tar')


@pytest.mark.parametrize('split', ['val', 'val.tar'])
def test_classes_are_numbered_by_the_given_names(root, split):
    """As of a checkpoint: with some of the folders only, and never by position."""
    names = ['mouse', *reversed(CLASSES)]
    pack(root / 'val', root / 'val.tar', '')
    dataset = ImageDataset(str(root), split, metainfo=dict(classes=names), num_classes=4)
    assert [dataset.get_data_info(i)['label'] for i in (0, 4, 8)] == [3, 2, 1]
    assert dataset.metainfo['classes'] == tuple(names)
    with pytest.raises(ValueError, match='beagle'):
        ImageDataset(str(root), split, metainfo=dict(classes=CLASSES[:2]))


# -- images ----------------------------------------------------------------------------------------


@pytest.mark.parametrize('mode, suffix', [('I;16', 'png'), ('I;16', 'tif'), ('I;16B', 'tif'), ('I', 'tif'),
                                          ('I', 'ppm')])
def test_16_bit_greyscale_is_scaled(tmp_path, mode, suffix):
    """Not clipped: as mmcv reads it, to one of 255 levels."""
    import mmcv
    ramp = np.linspace(0, 65535, 64 * 48).reshape(48, 64)
    dtype = {'I;16': '<u2', 'I;16B': '>u2', 'I': '<i4'}[mode]
    path = tmp_path / f'a.{suffix}'
    Image.fromarray(ramp.astype(dtype)).save(path)
    image = open_image(path)
    pixels = np.asarray(image).astype(float)
    assert image.mode == 'RGB' and np.abs(pixels - ramp[..., None] / 257).max() < 0.51
    if mode != 'I':
        assert np.abs(pixels - mmcv.imread(path)).max() <= 1
    elif suffix == 'tif':  # values that may be of 8 bits
        image = Image.fromarray(np.full((4, 4), 200, np.int32))
        image.save(path)
        for source in (path, image):
            with pytest.raises(ValueError, match='int32'):
                open_image(source)


def test_training_crop_is_timms_from_a_jpeg_decoded_no_larger_than_needed(tmp_path):
    from timm.data import create_transform
    (tmp_path / 'ant').mkdir()
    noise = np.random.default_rng(0).integers(0, 256, (2, 3, 3), dtype=np.uint8)
    Image.fromarray(noise).resize((601, 403), Image.Resampling.BICUBIC).save(tmp_path / 'ant/a.jpg', quality=95)
    reduced, full = [], []
    for size in (24, 60, 300):
        transform = dict(input_size=size, is_training=True, interpolation='bicubic', scale=(0.3, 1.), hflip=0.,
                         color_jitter=None)
        dataset = ImageDataset(str(tmp_path), transform=transform)
        for seed in range(8):
            random.seed(seed)
            image = Image.open(tmp_path / 'ant/a.jpg')
            dataset.crop(image)
            random.seed(seed)
            wanted = create_transform(**transform, use_prefetcher=True)(Image.open(tmp_path / 'ant/a.jpg'))
            difference = (seeded(dataset, 0, seed)['inputs'].float() - wanted.float()).abs()
            (full if image.width == 601 else reduced).append(difference.mean().item())
            assert image.width in {24: (76, 151), 60: (151, 301, 601), 300: (601, )}[size]
    assert len(reduced) >= 8 and len(full) >= 8 and max(full) == 0
    assert max(reduced) < 4  # of 255 levels: a shift by a pixel or a wrong box makes tens


@pytest.mark.parametrize('suffix, orientation', [
    *(('jpg', orientation) for orientation in range(1, 9)), ('png', 6), ('tif', 6), ('webp', 6)])
def test_a_photo_is_the_same_for_every_task(tmp_path, orientation, suffix):
    """In training, evaluation, prediction, slices and conversion, and as MMDetection and MMSegmentation read it."""
    from mmcv.transforms import LoadImageFromFile
    corners = np.array([[(250, 0, 0), (0, 250, 0), (0, 0, 250)], [(250, 250, 0), (0, 250, 250), (90, 90, 90)]],
                       np.uint8)
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = tmp_path / f'turned/a/photo.{suffix}'
    path.parent.mkdir(parents=True)
    options = dict(jpg=dict(quality=98, subsampling=0), webp=dict(lossless=True)).get(suffix, {})
    Image.fromarray(corners).resize((160, 112), Image.Resampling.NEAREST).save(path, exif=exif, **options)
    dense = LoadImageFromFile()(dict(img_path=str(path)))['img']
    sample = convert.image_entry(path, 'train')
    assert (sample['height'], sample['width']) == dense.shape[:2]
    assert np.abs(np.asarray(open_image(path)) - dense[..., ::-1].astype(float)).mean() < 2
    if suffix == 'webp':  # which mmcv does not turn
        return
    (tmp_path / 'upright/a').mkdir(parents=True)
    Image.fromarray(dense[..., ::-1]).save(tmp_path / f'upright/a/photo.{suffix}', quality=98)
    for transform in (dict(input_size=32), dict(input_size=16, is_training=True, color_jitter=None)):
        turned, plain = (ImageDataset(str(tmp_path / name), transform=transform) for name in ('turned', 'upright'))
        difference = seeded(turned, 0, 0)['inputs'].float() - seeded(plain, 0, 0)['inputs'].float()
        assert difference.abs().mean() < 8  # the upright one is decoded at a fraction; turned wrongly: over 50


# -- mistakes --------------------------------------------------------------------------------------


def test_missing_folders_and_images(root):
    for arguments in (('nowhere', ), ('nowhere', 'train'), (root, 'test')):
        with pytest.raises(FileNotFoundError, match=str(arguments[-1])):
            ImageDataset(*map(str, arguments))
    (root / 'train/dog').mkdir()
    with pytest.raises(ValueError, match='dog'):
        ImageDataset(str(root), 'train')


@pytest.mark.parametrize('text, error, message', [
    ('Bengal/Bengal_1.JPEG 0\nBengal/gone.JPEG 1\nfar/away.JPEG 2\n', FileNotFoundError, 'gone.*away'),
    ('Bengal/Bengal_1.JPEG 3\n', ValueError, 'num_classes=3'), ('Bengal/Bengal_1.JPEG\n', ValueError, 'line 1'),
    (None, FileNotFoundError, 'val.txt')])
def test_bad_list_files(root, text, error, message):
    (root / 'meta/val.txt').write_text(text) if text else (root / 'meta/val.txt').unlink()
    with pytest.raises(error, match=message):
        ImageDataset(str(root), 'val', ann_file='meta/val.txt', num_classes=3)


def test_unreadable_images_are_replaced_in_training_and_black_in_an_evaluation(root):
    for split in ('train', 'val'):
        damaged = root / f'{split}/Siamese/Siamese_1.JPEG'
        damaged.write_bytes(damaged.read_bytes()[:200])
    (root / 'train/Siamese/Siamese_2.JPEG').write_bytes(b'')
    dataset = ImageDataset(str(root), 'train', transform=TRAIN)
    samples = [seeded(dataset, 5, seed) for seed in range(30)]
    for sample in samples:
        assert 'Siamese_1.JPEG\tOSError' in sample['unreadable'].split('\n')[0] and sample['labels'] >= 0
        assert not sample['paths'].endswith(('Siamese_1.JPEG', 'Siamese_2.JPEG'))
    assert len({sample['paths'] for sample in samples}) > 5  # not always the same
    assert any('Siamese_2.JPEG\tUnidentifiedImageError' in sample['unreadable'] for sample in samples)
    sample = ImageDataset(str(root), 'val', transform=dict(input_size=24))[5]
    assert sample['labels'] == -1 and not sample['inputs'].any()
    assert sample['paths'].endswith('Siamese_1.JPEG') and 'Siamese_1.JPEG' in sample['unreadable']


# -- with worker processes -------------------------------------------------------------------------


def test_workers_share_no_position_in_a_tar_file(root):
    """Neither with each other nor with the process that read an image before it started them."""
    pack(root / 'val', root / 'val.tar', '')
    dataset = ImageDataset(str(root), 'val.tar', transform=dict(input_size=24))
    expected = torch.stack([sample['inputs'] for sample in dataset])
    pickle.dumps(dataset)  # which an open file cannot be
    loader = DataLoader(dataset, 2, num_workers=2)
    assert torch.equal(torch.cat([batch['inputs'] for batch in loader]), expected)


def test_images_of_rare_classes_are_drawn_more_often(tmp_path):
    """Ten images of three classes: each of a class with one image is repeated ceil(sqrt(1 / (3 * 0.1))) = 2 times."""
    for name, number in dict(many=8, one=1, other=1).items():
        (tmp_path / name).mkdir()
        for i in range(number):
            Image.new('RGB', (8, 8)).save(tmp_path / name / f'{i}.png')
    (tmp_path / 'all.txt').write_text(''.join(f'many/{i}.png 0\n' for i in range(8)) + 'one/0.png 1\nother/0.png 2\n')
    for ann_file, names in (('', ('many', 'one', 'other')), ('all.txt', None)):
        dataset = DATASETS.build(dict(type='cvt_dense.BalancedDataset', dataset=dict(
            type='cvt_dense.ImageDataset', data_root=str(tmp_path), ann_file=ann_file, transform=TRAIN)))
        assert [dataset[i]['labels'] for i in range(len(dataset))] == [0] * 8 + [1] * 2 + [2] * 2
        assert (dataset.metainfo['classes'] or None) == names
    use_seeds(dataset)
    images, again = (torch.cat([batch['inputs'] for batch in DataLoader(
        dataset, 4, sampler=SeededSampler(dataset, seed=3), num_workers=workers,
        collate_fn=FUNCTIONS.get('default_collate'))]) for workers in (0, 2))
    assert torch.equal(images, again)  # the wrapper is seeded as the data set would be


@pytest.mark.parametrize('damage', [
    lambda content, member: content[:member] + b'x' * 100 + content[member + 100:],  # of its header
    lambda content, member: content[:member], lambda content, member: content * 2, None],
    ids=['header', 'cut', 'twice', 'link'])
def test_a_tar_file_of_which_images_would_be_missing_is_refused(root, damage):
    if damage is None:
        (root / 'train/Bengal/link.png').symlink_to('Bengal_0.png')
    tar = pack(root / 'train', root / 'all.tar', '')
    with tarfile.open(tar) as file:
        member = file.getmembers()[5].offset
    if damage is not None:
        tar.write_bytes(damage(tar.read_bytes(), member))
    with pytest.raises(ValueError, match='all.tar'):
        ImageDataset(str(root), 'all.tar')
