# CvT-13 on CIFAR-100 at 384x384, from weights of ImageNet-22k, then -1k; folders data/cifar100/{train,val}/<class>/.
# Authors' top-1: CvT-13 91.11, CvT-21 92.88, CvT-W24 94.09.
_base_ = 'cvt13_cifar10.py'

model = dict(num_classes=100)
data_root = 'data/cifar100'
train_dataloader = dict(dataset=dict(data_root=data_root))
val_dataloader = dict(dataset=dict(data_root=data_root))
test_dataloader = val_dataloader
