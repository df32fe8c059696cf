# ADE20K, 150 classes.
_base_ = './folders.py'

dataset_type = 'ADE20KDataset'
data_root = 'data/ade/ADEChallengeData2016'

train_dataloader = dict(
    dataset=dict(
        type=dataset_type,
        data_root=data_root,
        data_prefix=dict(img_path='images/training', seg_map_path='annotations/training')))
val_dataloader = dict(
    dataset=dict(
        type=dataset_type,
        data_root=data_root,
        data_prefix=dict(img_path='images/validation', seg_map_path='annotations/validation')))
test_dataloader = val_dataloader
