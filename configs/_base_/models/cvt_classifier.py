# CvT-13 with a 1000-class head, and what happens to a batch on the device (authors' settings).
model = dict(
    type='cvt_dense.ImageClassifier',
    backbone=dict(type='cvt_dense.CvT', arch='cvt-13', out_type='cls_token'),
    num_classes=1000,
    data_preprocessor=dict(
        type='cvt_dense.ClassificationPreprocessor',
        mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375],
        random_erasing=dict(probability=0.25, mode='pixel', max_count=1),
        mixup=dict(mixup_alpha=0.8, cutmix_alpha=1.0, prob=1.0, switch_prob=0.5, mode='batch'),
        label_smoothing=0.1))
