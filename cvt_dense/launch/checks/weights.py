"""Compare the weights that a run loads with its model and its classes."""
from ...classes import Classes
from ...config import check_exists
from ...errors import CheckpointError
from ...weights import StrictLoading, check_model, load_weights_file, select_weights
from ...weights.preprocessing import check_preprocessing
from ..built import Built


def check_weights(built: Built) -> None:
    """Check the file that a training continues or fine-tunes (otherwise that of ``init_cfg``).

    The weights are not loaded. Those of a test are in the model already; their classes are compared with the data's.

    Raises:
        UserError: a file cannot be read, is for another architecture, or has a class of the data under another number.
    """
    cfg, model = built.cfg, built.model
    data = Classes.of_data(built.loaders[built.stage].dataset, built.stage)
    if built.trained:
        built.trained.classes.check_order(data)
        if not built.trained.exported:
            check_preprocessing(cfg, model, built.trained.source)
        return
    if file := cfg.get('load_from'):
        check_exists(file)
        content = load_weights_file(file)
        check_model(model, select_weights(content, source=file), file, bool(cfg.resume))
        if cfg.resume:  # otherwise HeadClassesHook gives each class its rows
            Classes.of_file(content, file).check_order(data)
    else:
        try:
            for module in model.modules():
                if isinstance(module, StrictLoading):
                    module.check_init_weights()
        except CheckpointError as error:
            raise CheckpointError(f'{error} The file is named by init_cfg (in a template: pretrained); None trains '
                                  'from scratch.') from error
    if not cfg.resume:
        check_preprocessing(cfg, model, file)
