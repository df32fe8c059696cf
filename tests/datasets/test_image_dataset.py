"""ImageDataset and SeededSampler."""
import pickle
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from mmengine.registry import FUNCTIONS
from PIL import Image
from torch.utils.data import DataLoader

from cvt_dense.datasets import ImageDataset, SeededSampler, open_image
from cvt_dense.datasets.samplers import SeededIndex, seeded_samples

TRAIN = dict(input_size=24, is_training=True, auto_augment='rand-m9-mstd0.5-inc1', interpolation='bicubic')


def seeded(dataset, index, seed):
    return seeded_samples(dataset, [SeededIndex(index, seed)])[0]


@pytest.fixture
def root(tmp_path):
    rng = np.random.default_rng(0)
    for split in ('train', 'val'):
        for i, name in enumerate(('ant', 'bee', 'cat')):
            (tmp_path / split / name).mkdir(parents=True)
            for j in range(4):
                image = Image.fromarray(rng.integers(0, 256, (30, 40, 3), dtype=np.uint8))
                image.save(tmp_path / split / name / f'{name}_{j}.{"JPEG" if j else "png"}')
    (tmp_path / 'meta').mkdir()
    lines = [f'{p.relative_to(tmp_path / "val")} {i // 4}'
             for i, p in enumerate(sorted((tmp_path / 'val').rglob('*.*')))]
    (tmp_path / 'meta' / 'val.txt').write_text('\n'.join(lines) + '\n')
    return tmp_path


def test_class_folders(root):
    (root / 'train' / 'ant' / 'notes.txt').write_text('not an image')
    dataset = ImageDataset(str(root), 'train', transform=dict(input_size=24))
    assert len(dataset) == 12 and dataset.metainfo['classes'] == ('ant', 'bee', 'cat')
    sample = dataset[5]
    assert sample['inputs'].shape == (3, 24, 24) and sample['inputs'].dtype == torch.uint8
    assert sample['labels'] == 1 and sample['paths'] == 'bee/bee_1.JPEG' and sample['unreadable'] == ''
    assert [dataset[i]['labels'] for i in range(12)] == [0] * 4 + [1] * 4 + [2] * 4


def test_list_file_gives_the_same_samples(root):
    options = dict(transform=dict(input_size=24), num_classes=3)
    listed = ImageDataset(str(root), 'val', ann_file='meta/val.txt', **options)
    folders = ImageDataset(str(root), 'val', **options)
    assert len(listed) == len(folders) == 12
    for a, b in zip(listed, folders):
        assert torch.equal(a.pop('inputs'), b.pop('inputs')) and a == b


def test_list_file_with_spaces_in_names(root):
    (root / 'val' / 'ant' / 'ant_0.png').rename(root / 'val' / 'ant' / 'an ant.png')
    (root / 'meta' / 'val.txt').write_text('ant/an ant.png 2\n\n')
    dataset = ImageDataset(str(root), 'val', ann_file='meta/val.txt')
    assert len(dataset) == 1 and dataset[0]['labels'] == 2 and dataset[0]['paths'] == 'ant/an ant.png'


@pytest.mark.parametrize('mode', ['L', 'CMYK', 'P', 'RGBA', 'I;16'])
def test_every_colour_mode_becomes_rgb(root, mode):
    if mode == 'I;16':
        image = Image.fromarray(np.full((30, 30), 100, np.uint16))
    else:
        image = Image.new('RGB', (30, 30), (100, 90, 80)).convert(mode)
    image.save(root / 'train' / 'ant' / ('z.jpg' if mode in ('L', 'CMYK') else 'z.png'))
    dataset = ImageDataset(str(root), 'train', transform=dict(input_size=24))
    sample = dataset[4]
    assert sample['paths'].startswith('ant/z') and sample['inputs'].shape == (3, 24, 24)
    assert sample['unreadable'] == ''


def test_tar_file_through_timms_reader(root):
    import tarfile
    with tarfile.open(root / 'train.tar', 'w') as tar:
        tar.add(root / 'train', arcname='train')
    dataset = ImageDataset(str(root), 'train.tar', reader='', transform=dict(input_size=24))
    folders = ImageDataset(str(root), 'train', transform=dict(input_size=24))
    assert len(dataset) == 12 and dataset[5]['labels'] == 1
    assert torch.equal(dataset[5]['inputs'], folders[5]['inputs'])
    (root / 'shards').mkdir()
    for folder in (root / 'train').iterdir():
        with tarfile.open(root / 'shards' / f'{folder.name}.tar', 'w') as tar:
            tar.add(folder, arcname=folder.name)
    shards = ImageDataset(str(root), 'shards', reader='tar', transform=dict(input_size=24))
    assert len(shards) == 12 and all(torch.equal(shards[i]['inputs'], dataset[i]['inputs'])
                                     and shards[i]['labels'] == dataset[i]['labels'] for i in range(12))


def test_memory_does_not_hold_python_objects_per_image(root):
    dataset = ImageDataset(str(root), 'train')
    copy = pickle.loads(pickle.dumps(dataset))
    assert copy.reader.filename(7) == dataset.reader.filename(7) == 'bee/bee_3.JPEG'
    for name, value in vars(dataset.reader).items():
        assert not isinstance(value, (list, dict)) or len(value) <= 3, name


def test_training_crop_is_timms_from_a_jpeg_decoded_no_larger_than_needed(tmp_path):
    from timm.data import create_transform
    (tmp_path / 'ant').mkdir()
    noise = np.random.default_rng(0).integers(0, 256, (2, 3, 3), dtype=np.uint8)
    Image.fromarray(noise).resize((601, 403), Image.Resampling.BICUBIC).save(tmp_path / 'ant' / 'a.jpg', quality=95)
    reduced, full = [], []
    for size in (24, 60, 300):
        for seed in range(8):
            transform = dict(input_size=size, is_training=True, interpolation='bicubic', scale=(0.3, 1.),
                             hflip=0., color_jitter=None)
            dataset = ImageDataset(str(tmp_path), transform=transform)
            random.seed(seed)
            image = Image.open(tmp_path / 'ant' / 'a.jpg')
            dataset.crop(image)
            random.seed(seed)
            wanted = create_transform(**transform, use_prefetcher=True)(Image.open(tmp_path / 'ant' / 'a.jpg'))
            difference = (seeded(dataset, 0, seed)['inputs'].float() - wanted.float()).abs()
            (full if image.width == 601 else reduced).append(difference.mean().item())
            assert image.width in {24: (76, 151), 60: (151, 301, 601), 300: (601, )}[size]
    assert len(reduced) >= 8 and len(full) >= 8
    assert max(full) == 0
    assert max(reduced) < 4  # of 255 levels: a shift by a pixel or a wrong box makes tens


def save_turned(folder: Path, orientation: int) -> Path:
    """A photo that stands upright only once its EXIF orientation is applied; the same for each of the 8."""
    corners = np.array([[(250, 0, 0), (0, 250, 0), (0, 0, 250)], [(250, 250, 0), (0, 250, 250), (90, 90, 90)]],
                       np.uint8)
    upright = Image.fromarray(corners).resize((160, 112), Image.Resampling.NEAREST)
    stored = {2: 'FLIP_LEFT_RIGHT', 3: 'ROTATE_180', 4: 'FLIP_TOP_BOTTOM', 5: 'TRANSPOSE', 6: 'ROTATE_90',
              7: 'TRANSVERSE', 8: 'ROTATE_270'}.get(orientation)
    image = upright.transpose(getattr(Image.Transpose, stored)) if stored else upright
    exif = Image.Exif()
    exif[0x0112] = orientation
    folder.mkdir(parents=True)
    image.save(folder / 'photo.jpg', exif=exif, quality=98, subsampling=0)
    return folder / 'photo.jpg'


@pytest.mark.parametrize('orientation', range(1, 9))
def test_a_photo_is_upright_for_every_task(tmp_path, orientation):
    """In training, evaluation and prediction, and as MMDetection and MMSegmentation read it."""
    from mmcv.transforms import LoadImageFromFile
    upright = np.asarray(Image.open(save_turned(tmp_path / 'upright' / 'a', 1))).astype(float)
    path = save_turned(tmp_path / 'turned' / 'a', orientation)
    with open(path, 'rb') as file:
        assert np.abs(np.asarray(open_image(file)) - upright).mean() < 2
    dense = LoadImageFromFile()(dict(img_path=str(path)))['img']
    assert np.abs(dense[..., ::-1] - upright).mean() < 2
    for transform in (dict(input_size=32), dict(input_size=16, is_training=True, color_jitter=None)):
        turned, plain = (ImageDataset(str(tmp_path / name), transform=transform) for name in ('turned', 'upright'))
        for seed in range(4):
            difference = seeded(turned, 0, seed)['inputs'].float() - seeded(plain, 0, seed)['inputs'].float()
            assert difference.abs().mean() < 8  # the upright one is decoded at a fraction; turned wrongly: over 50


def test_broken_exif_does_not_lose_the_image(tmp_path):
    path = save_turned(tmp_path / 'a', 6)
    content = path.read_bytes()
    place = content.index(b'Exif\0\0') + 6
    path.write_bytes(content[:place] + b'XX\xff\xff' + content[place + 4:])
    assert open_image(path).size == (112, 160)  # as it is stored
    Image.open(path).save(path.with_name('cut.png'))
    damage(path.with_name('cut.png'))
    with pytest.raises(OSError):
        open_image(path.with_name('cut.png')).load()


def test_randaugment_at_every_magnitude():
    """Pillow 13 refuses posterize to 0 bits, where magnitude 9 with deviation 0.5 sometimes gets."""
    from timm.data.auto_augment import AugmentOp
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (30, 40, 3), dtype=np.uint8))
    for bits, magnitude in ((0, 10), (1, 9)):
        result = np.array(AugmentOp('PosterizeIncreasing', prob=1., magnitude=magnitude)(image))
        assert np.array_equal(result, np.array(image) & (0xff << (8 - bits) & 0xff))


# -- mistakes --------------------------------------------------------------------------------------


def test_missing_root(tmp_path):
    with pytest.raises(FileNotFoundError, match="data root '.*nowhere' is not a folder; give the right one "
                                                "with --data"):
        ImageDataset(str(tmp_path / 'nowhere'), 'train')


def test_missing_split_and_no_images(root):
    with pytest.raises(FileNotFoundError, match="'.*/test' is not a folder. Expected is one folder per "
                                                "class"):
        ImageDataset(str(root), 'test')
    (root / 'empty' / 'ant').mkdir(parents=True)
    with pytest.raises(FileNotFoundError, match=r'holds no image in class folders \(1 folders\)'):
        ImageDataset(str(root), 'empty')
    (root / 'train' / 'dog').mkdir()
    with pytest.raises(ValueError, match="1 class folders in '.*train' hold no image: 'dog'"):
        ImageDataset(str(root), 'train')


def test_more_classes_than_outputs(root):
    with pytest.raises(ValueError, match='holds 3 class folders, but the head has 2 outputs: set '
                                         'model.num_classes=3'):
        ImageDataset(str(root), 'train', num_classes=2)
    assert len(ImageDataset(str(root), 'train', num_classes=1000)) == 12


@pytest.mark.parametrize('text, error, message', [
    ('ant/ant_1.JPEG 0\nant/gone.JPEG 1\nfar/away.JPEG 2\n', FileNotFoundError,
     "names 2 images \\(of 3\\) that are not in '.*val': 'ant/gone.JPEG', 'far/away.JPEG'"),
    ('ant/ant_1.JPEG 3\n', ValueError, "gives 'ant/ant_1.JPEG' the label 3, but the head has 3 outputs: "
                                       "allowed are 0 to 2"),
    ('ant/ant_1.JPEG 0\nant/ant_2.JPEG -1\n', ValueError, "line 2: 'ant/ant_2.JPEG -1' is not a path, a "
                                                          "space and a class"),
    ('ant/ant_1.JPEG\n', ValueError, "line 1: 'ant/ant_1.JPEG' is not a path"),
    ('\n', ValueError, 'names no image'),
])
def test_bad_list_files(root, text, error, message):
    (root / 'meta' / 'val.txt').write_text(text)
    with pytest.raises(error, match=message):
        ImageDataset(str(root), 'val', ann_file='meta/val.txt', num_classes=3)
    with pytest.raises(FileNotFoundError, match="list file '.*gone.txt' does not exist"):
        ImageDataset(str(root), 'val', ann_file='meta/gone.txt')


def damage(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:200])


def test_unreadable_image_in_training_is_replaced_and_named(root):
    damage(root / 'train' / 'bee' / 'bee_1.JPEG')
    (root / 'train' / 'bee' / 'bee_2.JPEG').write_bytes(b'')
    dataset = ImageDataset(str(root), 'train', transform=TRAIN)
    samples = [seeded(dataset, 5, seed) for seed in range(30)]
    for sample in samples:
        named = sample['unreadable'].split('\n')
        assert 'bee/bee_1.JPEG (OSError: ' in named[0]
        assert sample['paths'] not in ('bee/bee_1.JPEG', 'bee/bee_2.JPEG') and sample['labels'] >= 0
    assert len({sample['paths'] for sample in samples}) > 5, 'always the same image takes its place'
    assert any('bee_2.JPEG (UnidentifiedImageError' in sample['unreadable'] for sample in samples)


def test_unreadable_image_in_evaluation_keeps_its_place(root):
    damage(root / 'val' / 'bee' / 'bee_1.JPEG')
    sample = ImageDataset(str(root), 'val', transform=dict(input_size=24))[5]
    assert sample['labels'] == -1 and sample['inputs'].shape == (3, 24, 24)
    assert sample['paths'] == 'bee/bee_1.JPEG' and 'bee_1.JPEG' in sample['unreadable']


def test_nothing_readable_in_training(root):
    for path in (root / 'train').rglob('*.*'):
        damage(path) if path.suffix != '.png' else path.write_bytes(b'x')
    dataset = ImageDataset(str(root), 'train', transform=TRAIN)
    with pytest.raises(OSError, match='11 images drawn one after the other cannot be read'):
        seeded(dataset, 0, 1)


# -- sampler ---------------------------------------------------------------------------------------


def load(root, num_workers, epoch=0, seed=3, **sampler):
    dataset = ImageDataset(str(root), 'train', transform=TRAIN)
    sampler = SeededSampler(dataset, seed=seed, **sampler)
    sampler.set_epoch(epoch)
    loader = DataLoader(dataset, 4, sampler=sampler, num_workers=num_workers,
                        collate_fn=FUNCTIONS.get('default_collate'))
    batches = list(loader)
    return torch.cat([b['inputs'] for b in batches]), [path for b in batches for path in b['paths']]


def test_images_depend_on_seed_and_epoch_alone(root):
    images, paths = load(root, num_workers=0)
    torch.manual_seed(99)
    for workers in (1, 2):
        again, same_paths = load(root, num_workers=workers)
        assert torch.equal(images, again) and paths == same_paths
    assert sorted(paths) == sorted(set(paths)) and len(paths) == 12
    for other in (dict(epoch=1), dict(seed=4)):
        changed, other_paths = load(root, num_workers=0, **other)
        assert other_paths != paths and sorted(other_paths) == sorted(paths)
        for path in paths:  # another augmentation of every image
            assert not torch.equal(images[paths.index(path)], changed[other_paths.index(path)])


def test_repeated_augmentation(root):
    images, paths = load(root, num_workers=0, num_repeats=3)
    assert len(paths) == 12 and len(set(paths)) == 4
    for i in range(0, 12, 3):
        assert len(set(paths[i:i + 3])) == 1
        assert not torch.equal(images[i], images[i + 1]) and not torch.equal(images[i + 1], images[i + 2])
    with pytest.raises(ValueError, match='num_repeats=0: allowed is 1'):
        SeededSampler(range(4), num_repeats=0)


def test_processes_share_an_epoch(monkeypatch):
    seen = []
    for rank in range(3):
        monkeypatch.setattr('mmengine.dataset.sampler.get_dist_info', lambda: (rank, 3))
        sampler = SeededSampler(range(10), seed=0)
        part = list(sampler)
        assert len(part) == len(sampler) == 4
        seen += part
    assert set(seen) == set(range(10))
    assert len({index.seed for index in seen}) == 12


def test_some_folders_of_a_longer_list_of_classes(tmp_path):
    """ImageNet-A has 200 of the 1000 folders: their labels are those of the 1000."""
    for name in ('n01498041', 'n12267677'):
        (tmp_path / name).mkdir()
        Image.new('RGB', (40, 40)).save(tmp_path / name / 'x.png')
    dataset = ImageDataset(str(tmp_path), class_names='imagenet-1k', num_classes=1000)
    assert [dataset[i]['labels'] for i in range(2)] == [6, 988] and len(dataset.metainfo['classes']) == 1000
    with pytest.raises(ValueError, match="are none of the 2 class_names: 'n12267677'"):
        ImageDataset(str(tmp_path), class_names=['n01498041', 'other'])
