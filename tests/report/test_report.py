"""Reports: their numbers against pycocotools, scikit-learn and errors that are known by construction."""
import json

import numpy as np
import pytest
from PIL import Image
from sklearn.metrics import balanced_accuracy_score

from cvt_dense.report import classification, compare, detection, segmentation
from cvt_dense.report.page import Report

CLASSES = ('cat', '<script>alert(1)</script>', 'dog')


def images(number: int) -> Report:
    report = Report('a report')
    for i in range(number):
        report.add_image(f'{i}.jpg')
    return report


def table(report: Report, title: str, number: int = 0) -> dict:
    section = next(section for section in report.sections if section['title'] == title)
    return [block for block in section['blocks'] if block['kind'] == 'table'][number]


def classified(flipped: int = 0) -> list[dict]:
    """120 records of three classes; the first ``flipped`` ones are annotated as the next class."""
    rng = np.random.default_rng(0)
    records = []
    for i in range(120):
        logits = rng.normal(size=3) + 3 * np.eye(3)[i % 3]
        label = (i + 1) % 3 if i < flipped else i % 3
        records.append(dict(label=label, feature=logits, probabilities=np.exp(logits) / np.exp(logits).sum()))
    return records


def test_classification_agrees_with_scikit_learn_and_finds_flipped_labels():
    report, records = images(120), classified(flipped=12)
    found = classification.diagnose(report, records, CLASSES)
    recalls = [row[3]['value'] for row in table(report, 'Classes')['rows']]
    predicted = [record['probabilities'].argmax() for record in records]
    assert np.mean(recalls) == pytest.approx(balanced_accuracy_score(found['labels'], predicted))
    assert found['top1'] == pytest.approx(100 * np.mean(found['labels'] == predicted))
    assert sum(i < 12 for i in found['suspects'][:12]) >= 10, 'chance finds 1.2 of them'
    confusion = table(report, 'Confusion')
    assert sum(cell['value'] for row in confusion['rows'] for cell in row[1:]) == 120
    mistakes = [cell for k, row in enumerate(confusion['rows']) for cell in row[1:k + 1] + row[k + 2:]]
    assert sum(cell['value'] for cell in mistakes) == sum(predicted != found['labels'])
    assert all(cell['value'] == len(cell['images']) for cell in mistakes)


def boxes(*rows) -> np.ndarray:
    return np.array(rows, np.float32).reshape(-1, 4)


def detected(gt=(), gt_labels=(), found=(), labels=(), scores=()) -> dict:
    gt = boxes(*gt)
    return dict(size=(200, 200), gt_boxes=gt, gt_labels=list(gt_labels), gt_crowd=[0] * len(gt), gt_masks=[], masks=[],
                gt_areas=(gt[:, 2:] - gt[:, :2]).prod(1), boxes=boxes(*found), labels=np.array(labels, int),
                scores=np.array(scores, np.float32))


HERE, THERE = (0, 0, 40, 40), (100, 100, 160, 160)
# One image with one error of each of TIDE's kinds.
ERRORS = dict(
    Cls=detected([HERE], [0], [HERE], [2], [.9]),
    Loc=detected([HERE], [0], [(0, 0, 40, 15)], [0], [.9]),
    Both=detected([HERE], [0], [(0, 0, 40, 15)], [2], [.9]),
    Dupe=detected([HERE], [0], [HERE, (0, 0, 40, 39)], [0, 0], [.9, .8]),
    Bkg=detected([HERE], [0], [HERE, THERE], [0, 0], [.9, .8]),
    Miss=detected([HERE, THERE], [0, 0], [HERE], [0], [.9]),
)


def test_each_of_tides_errors_is_found_where_it_was_made():
    gains, places = detection.tide(list(ERRORS.values()), CLASSES)
    for number, kind in enumerate(ERRORS):
        assert number in places[kind], kind
    assert all(len(found) == 1 for kind, found in places.items() if kind not in ('Miss', 'Both')), places
    assert sum(gains.values()) > 0


def test_detection_report_has_pycocotools_figures_and_shifted_boxes_are_localisation_errors():
    rng = np.random.default_rng(0)
    records = []
    for _ in range(20):
        corner = rng.uniform(0, 120, (3, 2))
        truth = np.concatenate((corner, corner + 30), 1)
        records.append(detected(truth, [0, 1, 2], truth + 8, [0, 1, 2], rng.uniform(.5, 1, 3)))
    report = images(20)
    detection.diagnose(report, records, CLASSES)
    evaluation = detection.evaluate(records, CLASSES, 'bbox')
    row = table(report, 'Average precision')['rows'][0]
    assert [cell['value'] for cell in row[1:4]] == pytest.approx(100 * evaluation.stats[:3])
    kinds = {row[0]['text'].split(':')[0]: row[2]['value'] for row in table(report, 'Kinds of errors')['rows']}
    assert kinds['localisation'] >= 55 and max(kinds.values()) == kinds['localisation']


def test_a_detector_that_finds_nothing_has_a_report():
    report = images(2)
    detection.diagnose(report, [detected([HERE], [0]), detected()], CLASSES)
    assert any('nothing' in sentence for sentence in report.summary)


def test_segmentation_counts_what_is_wrong_and_where():
    annotation = np.zeros((64, 96), np.uint8)
    annotation[:, 48:] = 1
    annotation[:4] = 255
    prediction = annotation.copy()
    prediction[32:, :24] = 2
    record = segmentation.count(prediction, annotation, 3, 255)
    assert record['matrix'].sum() == 60 * 96 and record['matrix'][0, 2] == 32 * 24
    assert segmentation.iou(record['matrix']) == pytest.approx([1 - 32 * 24 / (60 * 48), 1., 0.])
    assert record['wrong'][16:, :8].sum() == 32 * 24 and record['wrong'].sum() == 32 * 24
    report = images(2)
    segmentation.diagnose(report, [record, segmentation.count(annotation, annotation, 3, 255)], CLASSES)
    assert table(report, 'Classes')['rows'][2][5]['images'] == [0]


@pytest.mark.parametrize('worse, beyond', [(0, 'within'), (60, 'beyond')])
def test_comparison_says_whether_a_difference_is_beyond_chance(worse, beyond):
    first, second = classified(), classified()
    for record in second[:worse]:
        record['probabilities'] = np.roll(record['probabilities'], 1)
    report = images(120)
    one, other = (classification.diagnose(images(120), records, CLASSES) for records in (first, second))
    compare.compare(report, classification, one, other, CLASSES)
    assert beyond in report.summary[0]


def test_page_is_written_whole_and_escapes_names(tmp_path):
    report, records = images(120), classified()
    classification.diagnose(report, records, CLASSES)
    page = report.write(tmp_path / 'report', lambda number: Image.new('RGB', (8, 8)))
    html = page.read_text()
    assert '<script>alert' not in html and 'report.json' not in html
    content = json.loads(page.with_name('report.json').read_text())
    assert all((tmp_path / 'report' / image['file']).is_file() for image in content['images'].values())

    def fail(number):
        raise OSError('No space left on device')

    with pytest.raises(OSError):
        report.write(tmp_path / 'other', fail)
    assert [path.name for path in tmp_path.iterdir()] == ['report']
