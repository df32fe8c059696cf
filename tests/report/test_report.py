"""Reports: their numbers against pycocotools, scikit-learn, MMSegmentation and known errors."""
import numpy as np
import pytest
import supervision as sv
import torch
from mmdet.datasets import XMLDataset
from mmseg.evaluation import IoUMetric
from PIL import Image
from sklearn.metrics import balanced_accuracy_score

from cvt_dense.report import classification, detection, segmentation
from cvt_dense.report.collect import picture, read_infos
from cvt_dense.report.page import Report

CLASSES = ('cat', '<script>alert(1)</script>', 'dog')


def report_of(number: int) -> Report:
    return Report('a report', [f'{i}.jpg' for i in range(number)], lambda _: Image.new('RGB', (8, 8)))


def blocks(report: Report, title: str, kind: str) -> list[dict]:
    section = next(section for section in report.sections if section['title'] == title)
    return [block for block in section['blocks'] if block['kind'] == kind]


def values(report: Report, title: str) -> list[list]:
    """Return the numbers of a section's table, without the names in its first column."""
    return [[cell['value'] for cell in row[1:]] for row in blocks(report, title, 'table')[0]['rows']]


def test_classification_agrees_with_scikit_learn():
    rng = np.random.default_rng(0)
    labels, probabilities = rng.integers(0, 3, 120), rng.dirichlet(np.ones(3), 120)
    report, predicted = report_of(120), probabilities.argmax(1)
    classification.diagnose(report, [
        dict(label=label, probabilities=row) for label, row in zip(labels, probabilities)], CLASSES)
    recalls = [row[2] for row in values(report, 'Classes')]
    assert np.mean(recalls) == pytest.approx(balanced_accuracy_score(labels, predicted))
    assert f'Top-1 is {100 * np.mean(labels == predicted):.2f} %' in report.summary[0]
    suspects = blocks(report, 'Mistakes and suspects', 'pictures')[1]['images']
    assert suspects == probabilities[np.arange(120), labels].argsort()[:60].tolist()
    for row in blocks(report, 'Confusion', 'table')[0]['rows']:
        annotated, guessed = (CLASSES.index(cell['value']) for cell in row[:2])
        both = (labels == annotated) & (predicted == guessed)
        assert annotated != guessed and row[2]['value'] == len(row[2]['images']) == both.sum() > 0
        assert row[3]['value'] == pytest.approx(both.sum() / (labels == annotated).sum())
    assert sum(row[1] for row in values(report, 'Confusion')) == sum(predicted != labels)


def detected(gt=(), gt_labels=(), predicted=(), labels=(), scores=(), crowds=0) -> dict:
    """Return a record, of whose objects the last ``crowds`` are crowds."""
    gt, predicted = (np.array(rows, np.float32).reshape(-1, 4) for rows in (gt, predicted))
    return dict(
        truth=sv.Detections(gt, class_id=np.array(gt_labels, int), data=dict(
            crowd=np.arange(len(gt)) >= len(gt) - crowds)),
        predicted=sv.Detections(predicted, class_id=np.array(labels, int), confidence=np.array(scores, np.float32)))


HERE, THERE = (0, 0, 40, 40), (100, 100, 160, 160)


def test_detection_agrees_with_pycocotools_and_scikit_learn():
    """20 images with an object of each class, found 8 pixels beside, except on every fourth image."""
    rng = np.random.default_rng(0)
    records = []
    for i in range(20):
        corner = rng.uniform(0, 120, (3, 2))
        truth = np.concatenate((corner, corner + 30), 1)
        records.append(detected(truth, [0, 1, 2], truth + 8 * (i % 4 > 0), [0, 1, 2], rng.uniform(.5, 1, 3)))
    report, evaluation = report_of(20), detection.evaluate(records, CLASSES)
    detection.diagnose(report, records, CLASSES)
    evaluation.summarize()
    assert np.mean([row[1:4] for row in values(report, 'Classes')], 0) == pytest.approx(evaluation.stats[:3])
    detections = detection.match(evaluation)
    for k, (*_, score, precision, recall, f1) in enumerate(values(report, 'Classes')):
        of_class = detections[detections[:, 0] == k]
        numbers, hits = np.arange(1, len(of_class) + 1), of_class[:, 3].cumsum()
        assert f1 == pytest.approx(max(2 * hits / (numbers + 20)))
        best = of_class[:, 2] >= score
        assert (precision, recall) == pytest.approx((of_class[best, 3].mean(), of_class[best, 3].sum() / 20))


def test_segmentation_agrees_with_mmsegmentation_and_names_the_images_with_errors():
    """Of five images, the last is right; the fourth class is predicted, but never annotated."""
    rng = np.random.default_rng(0)
    maps = [(rng.integers(0, 4, (20, 30)), rng.choice([0, 1, 2, 255], (20, 30))) for _ in range(4)]
    maps.append((np.ones((20, 30), int), ) * 2)
    report = report_of(5)
    segmentation.diagnose(report, [dict(matrix=segmentation.count(*pair, 4, 255)) for pair in maps], [*CLASSES, 'eel'])
    areas = zip(*(IoUMetric.intersect_and_union(*map(torch.tensor, pair), 4, 255) for pair in maps))
    expected = IoUMetric.total_area_to_metrics(*(sum(area) for area in areas), metrics=['mIoU'])
    for column, name in enumerate(('IoU', 'Acc')):
        actual = np.array([row[column] for row in values(report, 'Classes')], float)  # None was not measured
        assert actual == pytest.approx(expected[name], nan_ok=True)
    rows = blocks(report, 'Classes', 'table')[0]['rows']
    assert all(set(row[4]['images']) == {0, 1, 2, 3} for row in rows)
    wrong = [np.mean((found != truth)[truth != 255]) for found, truth in maps]
    assert report.notes == [f'{100 * fraction:.1f} % of the pixels wrong' for fraction in wrong]
    assert blocks(report, 'Worst images', 'pictures')[0]['images'] == np.argsort(wrong)[:0:-1].tolist()


def test_objects_of_voc_files_are_read(tmp_path):
    (tmp_path / 'list.txt').write_text('a')
    box = ''.join(f'<{name}>{i}</{name}>' for i, name in enumerate(('xmin', 'ymin', 'xmax', 'ymax'), 1))
    (tmp_path / 'a.xml').write_text('<a><size><width>9</width><height>9</height></size><object><name>dog</name>'
                                    f'<bndbox>{box}</bndbox></object></a>')
    dataset = XMLDataset('', '', data_root=str(tmp_path), ann_file='list.txt', metainfo=dict(classes=('cat', 'dog')),
                         pipeline=[], data_prefix=dict(sub_data_root=''))
    assert [(box['bbox'], box['bbox_label']) for box in read_infos(dataset)[0]['instances']] == [([0, 1, 2, 3], 1)]


def test_a_detector_that_finds_nothing_has_a_page_with_escaped_names(tmp_path):
    report = report_of(2)
    detection.diagnose(report, [detected([HERE], [1]), detected()], CLASSES)
    assert values(report, 'Classes')[1][5] == 1, 'missed'
    assert '<script>alert' not in report.write(tmp_path / 'report').read_text()


def test_mistakes_of_a_detector_are_counted_by_class_without_crowds():
    """The best threshold is the score of the right detection, and leaves out the last one."""
    off, crowd = (28, 0, 68, 40), (100, 0, 150, 40)  # IoU of the first 0.18 with HERE
    record = detected([HERE, THERE, (160, 0, 199, 40), crowd], [0, 0, 2, 0], [THERE, off, HERE, HERE, crowd],
                      [1, 0, 0, 0, 0], [.9, .8, .7, .2, .95], crowds=1)
    report = report_of(1)
    detection.diagnose(report, [record], CLASSES)
    detected_missed_false = [row[4:7] for row in values(report, 'Classes')]
    assert detected_missed_false == [[1, 1, 1], [0, 0, 1], [0, 1, 0]]
    confusion = {(row[0]['value'], row[1]['value']): row[2]['value']
                 for row in blocks(report, 'Confusion', 'table')[0]['rows']}
    assert confusion == {('cat', CLASSES[1]): 1, ('dog', 'background'): 1, ('background', 'cat'): 1}
    assert report.notes == ['3 mistakes'] and len(record['predicted']) == 4


def test_a_truncated_image_is_grey(tmp_path):
    Image.effect_noise((90, 90), 80).convert('RGB').save(tmp_path / 'whole.jpg')
    (tmp_path / 'half.jpg').write_bytes((tmp_path / 'whole.jpg').read_bytes()[:2000])
    info = dict(img_path=str(tmp_path / 'half.jpg'), backend_args=None, loader=None)
    assert picture(info).convert('RGB').getcolors() == [(64 * 64, (128, 128, 128))]
