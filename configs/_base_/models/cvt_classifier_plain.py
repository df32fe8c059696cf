# cvt_classifier.py for fine-tuning: no random erasing, no Mixup, no CutMix.
_base_ = 'cvt_classifier.py'
model = dict(data_preprocessor=dict(random_erasing=None, mixup=None))
