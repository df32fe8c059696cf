# maskrcnn_cvtw24_coco.py with ZeRO, stage 1: AdamW's two averages, 296 M parameters * 2 * 4 bytes = 2.2 GiB, are
# spread over the GPUs. 8 GPUs * 2 = 16 images a step: each GPU keeps an eighth, 1.9 GiB less. Weights and
# checkpoints are those of AdamW, so a run may go on with the other config and with another number of GPUs.
_base_ = 'maskrcnn_cvtw24_coco.py'
optim_wrapper = dict(optimizer=dict(type='ZeroRedundancyOptimizer', optimizer_type='AdamW'))
