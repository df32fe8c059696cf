"""Reports: their numbers against pycocotools, scikit-learn and errors that are known by construction; colours."""
from pathlib import Path

import numpy as np
import pytest
import torch
from mmdet.datasets import XMLDataset
from mmdet.models import DetDataPreprocessor
from mmseg.evaluation import IoUMetric
from PIL import Image
from sklearn.metrics import balanced_accuracy_score, f1_score

from cvt_dense.report import browse, classification, detection, segmentation
from cvt_dense.report.collect import read_infos
from cvt_dense.report.page import Report

CLASSES = ('cat', '<script>alert(1)</script>', 'dog')


def images(number: int) -> Report:
    report = Report('a report')
    for i in range(number):
        report.add_image(f'{i}.jpg', lambda: Image.new('RGB', (8, 8)))
    return report


def blocks(report: Report, title: str, kind: str) -> list[dict]:
    section = next(section for section in report.sections if section['title'] == title)
    return [block for block in section['blocks'] if block['kind'] == kind]


def table(report: Report, title: str, number: int = 0) -> dict:
    return blocks(report, title, 'table')[number]


def classified(flipped: int = 0) -> list[dict]:
    """120 records of three classes; the first ``flipped`` ones are annotated as the next class."""
    rng = np.random.default_rng(0)
    records = []
    for i in range(120):
        logits = rng.normal(size=3) + 3 * np.eye(3)[i % 3]
        label = (i + 1) % 3 if i < flipped else i % 3
        records.append(dict(label=label, probabilities=np.exp(logits) / np.exp(logits).sum()))
    return records


def test_classification_agrees_with_scikit_learn_and_finds_flipped_labels():
    report, records = images(120), classified(flipped=12)
    classification.diagnose(report, records, CLASSES)
    recalls = [row[3]['value'] for row in table(report, 'Classes')['rows']]
    labels = np.array([record['label'] for record in records])
    predicted = np.array([record['probabilities'].argmax() for record in records])
    assert np.mean(recalls) == pytest.approx(balanced_accuracy_score(labels, predicted))
    assert f'Top-1 is {100 * np.mean(labels == predicted):.2f} %' in report.summary[0]
    suspects = blocks(report, 'Mistakes and suspects', 'pictures')[1]['images']
    assert sum(i < 12 for i in suspects[:12]) >= 10, 'chance finds 1.2 of them'
    confusion = table(report, 'Confusion')
    assert sum(cell['value'] for row in confusion['rows'] for cell in row[1:]) == 120
    mistakes = [cell for k, row in enumerate(confusion['rows']) for cell in row[1:k + 1] + row[k + 2:]]
    assert sum(cell['value'] for cell in mistakes) == sum(predicted != labels)
    assert all(cell['value'] == len(cell['images']) for cell in mistakes)


def boxes(*rows) -> np.ndarray:
    return np.array(rows, np.float32).reshape(-1, 4)


def detected(gt=(), gt_labels=(), predicted=(), labels=(), scores=()) -> dict:
    gt = boxes(*gt)
    return dict(size=(200, 200), gt_boxes=gt, gt_labels=list(gt_labels), gt_crowd=[0] * len(gt), gt_masks=[], masks=[],
                gt_areas=(gt[:, 2:] - gt[:, :2]).prod(1), boxes=boxes(*predicted), labels=np.array(labels, int),
                scores=np.array(scores, np.float32))


HERE, THERE = (0, 0, 40, 40), (100, 100, 160, 160)


def test_detection_agrees_with_pycocotools_and_scikit_learn():
    """20 images with an object of each class, found 8 pixels beside, except on every fourth image."""
    rng = np.random.default_rng(0)
    records = []
    for i in range(20):
        corner = rng.uniform(0, 120, (3, 2))
        truth = np.concatenate((corner, corner + 30), 1)
        records.append(detected(truth, [0, 1, 2], truth + 8 * (i % 4 > 0), [0, 1, 2], rng.uniform(.5, 1, 3)))
    report = images(20)
    detection.diagnose(report, records, CLASSES)
    evaluation = detection.evaluate(records, CLASSES, 'bbox')
    row, *by_class = table(report, 'Average precision')['rows']
    assert [cell['value'] for cell in row[1:4]] == pytest.approx(100 * evaluation.stats[:3])
    assert np.mean([row[1]['value'] for row in by_class]) == pytest.approx(100 * evaluation.stats[0])
    detections, objects = detection.match(evaluation)
    for k in range(3):
        of_class, number = detections[detections[:, 0] == k], (objects[:, 0] == k).sum()
        score, precision, recall, f1 = detection.best_threshold(of_class, number)
        kept = of_class[of_class[:, 2] >= score]
        assert (precision, recall) == pytest.approx((kept[:, 3].mean(), kept[:, 3].sum() / number))
        labels = np.r_[of_class[:, 3], np.ones(int(number - of_class[:, 3].sum()))]  # a missed object has no detection
        scores = np.r_[of_class[:, 2], np.zeros(len(labels) - len(of_class))]
        assert f1 == pytest.approx(max(f1_score(labels, scores >= step) for step in of_class[:, 2]))


def test_segmentation_agrees_with_mmsegmentation_and_names_the_images_with_errors():
    """Of five images, the last is right; the fourth class is predicted, but never annotated."""
    rng = np.random.default_rng(0)
    maps = [(rng.integers(0, 4, (20, 30)), rng.choice([0, 1, 2, 255], (20, 30))) for _ in range(4)]
    maps.append((np.ones((20, 30), int), ) * 2)
    report = images(5)
    segmentation.diagnose(report, [dict(matrix=segmentation.count(*pair, 4, 255)) for pair in maps], [*CLASSES, 'eel'])
    areas = zip(*(IoUMetric.intersect_and_union(*map(torch.tensor, pair), 4, 255) for pair in maps))
    expected = IoUMetric.total_area_to_metrics(*(sum(area) for area in areas), metrics=['mIoU'])
    rows = table(report, 'Classes')['rows']
    for column, name in ((1, 'IoU'), (2, 'Acc')):
        actual = np.array([row[column]['value'] for row in rows], float)  # None, where nothing was measured, is NaN
        assert actual == pytest.approx(100 * expected[name], nan_ok=True)
    assert all(set(row[4]['images']) == {0, 1, 2, 3} for row in rows)


def image_files(folder: Path, *arrays: np.ndarray) -> list[dict]:
    for i, array in enumerate(arrays):
        Image.fromarray(array).save(folder / f'{i}.png')
    return [dict(img_path=str(folder / f'{i}.png'), height=100, width=100, instances=[], backend_args=None, loader=None)
            for i in range(len(arrays))]


def test_objects_of_each_class_and_small_ones_are_counted(tmp_path):
    infos = image_files(tmp_path, *np.zeros((3, 100, 100, 3), np.uint8))
    large = dict(bbox=[10, 10, 50, 50], bbox_label=0)
    small = dict(bbox=[20, 20, 28, 28], bbox_label=2)
    for info, instances in zip(infos, ([small, large], [large, large], [])):
        info['instances'] = instances
    report = Report('')
    browse.add_detection_statistics(report, 'train', infos, CLASSES, (200, 200))
    rows = table(report, 'Data: train')['rows']
    assert [[cell['value'] for cell in row[1:4]] for row in rows] == [[2, 3, 0], [0, 0, 0], [1, 1, 0]]
    browse.add_detection_statistics(report, 'val', infos, CLASSES, None)  # sides of 8 pixels, 16 before
    assert table(report, 'Data: val')['rows'][2][3]['images'] == [len(infos)]


def test_objects_of_voc_files_are_read(tmp_path):
    (tmp_path / 'list.txt').write_text('a')
    box = ''.join(f'<{name}>{i}</{name}>' for i, name in enumerate(('xmin', 'ymin', 'xmax', 'ymax'), 1))
    (tmp_path / 'a.xml').write_text('<a><size><width>9</width><height>9</height></size><object><name>dog</name>'
                                    f'<bndbox>{box}</bndbox></object></a>')
    dataset = XMLDataset('', '', data_root=str(tmp_path), ann_file='list.txt', metainfo=dict(classes=('cat', 'dog')),
                         pipeline=[], data_prefix=dict(sub_data_root=''))
    assert [(box['bbox'], box['bbox_label']) for box in read_infos(dataset)[0]['instances']] == [([0, 1, 2, 3], 1)]


def test_page_escapes_names(tmp_path):
    report, records = images(120), classified()
    classification.diagnose(report, records, CLASSES)
    html = report.write(tmp_path / 'report').read_text()
    assert '<script>alert' not in html and 'report.json' not in html


def test_false_boxes_are_sorted_by_their_cause():
    """A box on an object of another class is a confusion, also if the object is detected rightly."""
    beside, off = (0, 0, 16, 40), (28, 0, 68, 40)  # IoU 0.4 and 0.18 with HERE
    predicted = [HERE, HERE, HERE, beside, off, (200, 200, 220, 220)]
    record = detected([HERE, THERE, (300, 0, 340, 40), (0, 300, 40, 340)], [0, 0, 2, 2],
                      [*predicted, (100, 100, 120, 160), (300, 0, 340, 38)], [0, 1, 0, 0, 1, 1, 0, 0],
                      np.linspace(.9, .2, 8))
    report = images(1)
    detection.add_causes(report, [record], *detection.match(detection.evaluate([record], CLASSES, 'bbox')), .1, CLASSES)
    causes = {row[0]['text']: [cell['value'] for cell in row[1:]] for row in table(report, 'Causes')['rows']}
    # other class, repeated, misplaced, both, background, missed
    assert causes == {'cat': [1, 1, 2, 0, 0, 0], CLASSES[1]: [1, 0, 0, 1, 1, 0], 'dog': [0, 0, 0, 0, 0, 1]}
    matrix = [[cell['value'] for cell in row[1:]] for row in table(report, 'Confusion')['rows']]
    assert matrix == [[1, 1, 0, 1], [0, 0, 0, 0], [1, 0, 0, 1], [3, 2, 0, 0]]
    assert '2 are on an object of another class' in report.summary[0]


def test_a_detector_that_finds_nothing_has_a_report():
    report = images(2)
    detection.diagnose(report, [detected([HERE], [0]), detected()], CLASSES)
    assert table(report, 'Classes')['rows'][0][3]['value'] == 1, 'missed'
    assert any('0 detections' in sentence for sentence in report.summary)


def test_one_class_has_a_report():
    report = images(1)
    detection.diagnose(report, [detected([HERE], [0], [HERE], [0], [.9])], ['cat'])
    assert '100.0 %' in report.summary[0]
    report = images(1)
    segmentation.diagnose(report, [dict(matrix=segmentation.count(*np.zeros((2, 8, 8), int), 1, 255))], ['cat'])
    assert '100.00 %' in report.summary[0]


def test_a_crowd_is_neither_missed_nor_found():
    record = dict(detected([HERE, THERE], [0, 0], [HERE, THERE], [0, 0], [.9, .8]), gt_crowd=[0, 1])
    detections, objects = detection.match(detection.evaluate([record], ['a'], 'bbox'))
    assert len(detections) == len(objects) == 1


# -- colours ---------------------------------------------------------------------------------------


@pytest.mark.parametrize('bgr_to_rgb', [True, False])
def test_the_input_is_shown_in_the_colours_of_the_image(bgr_to_rgb):
    preprocessor = DetDataPreprocessor(mean=[3.] * 3, std=[2.] * 3, bgr_to_rgb=bgr_to_rgb)
    red = torch.tensor([0, 0, 201], dtype=torch.uint8).view(3, 1, 1)  # in BGR, as images are loaded
    image, = preprocessor(dict(inputs=[red], data_samples=None))['inputs']
    assert browse.restore(image, preprocessor).getpixel((0, 0)) == (201, 0, 0)
