import my_extensions

from cvt_dense.cli.train import main
from cvt_dense.launch.checks.config import CONFIG_CHECKS

if __name__ == '__main__':
    CONFIG_CHECKS.append(my_extensions.check_epochs)
    main()
