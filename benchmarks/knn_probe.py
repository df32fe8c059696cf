"""Judges a classifier's features without training it: k nearest neighbours and a linear probe on class folders.

    python benchmarks/knn_probe.py cvt_dense://cvt-nano --data-root DIR --size 32 64

DIR holds train/<class>/* and val/<class>/*. Prints one line of JSON for each size: accuracy in percent of the 20
nearest neighbours by cosine similarity (weights exp(similarity / 0.07), as DINO's), and of a logistic regression on
the standardised features.
"""
import argparse
import json

import torch
import torch.nn.functional as F
from mmengine.registry import MODELS
from torch import Tensor, nn
from torch.utils.data import DataLoader

import cvt_dense.models  # noqa: F401
from cvt_dense.pretraining import ImageDataset


@torch.no_grad()
def extract(model: nn.Module, preprocessor: nn.Module, root: str, split: str, size: int) -> tuple[Tensor, Tensor]:
    """Return the backbone's averaged features (N, C) of a folder's images, and their labels (N, )."""
    dataset = ImageDataset(root, split, transform=dict(input_size=size, interpolation='bicubic', crop_pct=1.0))
    features, labels = [], []
    for batch in DataLoader(dataset, batch_size=100):
        features.append(model(preprocessor(batch)['inputs'])[0])
        labels.append(batch['labels'])
    return torch.cat(features), torch.cat(labels)


def knn(train: Tensor, train_labels: Tensor, val: Tensor, k: int = 20, temperature: float = 0.07) -> Tensor:
    """Return the class (N, ) that the k nearest training images vote for."""
    similarity, index = (F.normalize(val, dim=1) @ F.normalize(train, dim=1).T).topk(k)
    votes = torch.zeros(len(val), int(train_labels.max()) + 1)
    return votes.scatter_add_(1, train_labels[index], (similarity / temperature).exp()).argmax(1)


def linear_probe(train: Tensor, train_labels: Tensor, val: Tensor, decay: float = 1e-3) -> Tensor:
    """Return the class (N, ) that a logistic regression on the training features predicts."""
    mean, std = train.mean(0), train.std(0) + 1e-6
    train, val = (train - mean) / std, (val - mean) / std
    head = nn.Linear(train.shape[1], int(train_labels.max()) + 1)
    optimizer = torch.optim.LBFGS(head.parameters(), max_iter=200, line_search_fn='strong_wolfe')

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(head(train), train_labels) + decay * head.weight.square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    return head(val).argmax(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('checkpoint', help="weights of the backbone, or 'scratch' for random ones")
    parser.add_argument('--arch', default='cvt-nano')
    parser.add_argument('--seed', type=int, default=0, help='of random weights')
    parser.add_argument('--data-root', required=True, metavar='DIR')
    parser.add_argument('--size', type=int, nargs='+', default=[32, 64])
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    init_cfg = None if args.checkpoint == 'scratch' else dict(type='Pretrained', checkpoint=args.checkpoint)
    model = MODELS.build(dict(type='cvt_dense.CvT', arch=args.arch, out_type='avg_featmap', init_cfg=init_cfg))
    model.init_weights()
    model.eval()
    preprocessor = MODELS.build(dict(type='cvt_dense.ClassificationPreprocessor'))
    for size in args.size:
        train, train_labels = extract(model, preprocessor, args.data_root, 'train', size)
        val, labels = extract(model, preprocessor, args.data_root, 'val', size)
        result = dict(checkpoint=args.checkpoint, seed=args.seed, size=size)
        for name, method in (('knn', knn), ('linear', linear_probe)):
            result[name] = 100 * (method(train, train_labels, val) == labels).float().mean().item()
        print(json.dumps(result), flush=True)


if __name__ == '__main__':
    main()
