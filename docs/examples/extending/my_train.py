import my_extensions

from cvt_dense.cli.train import main
from cvt_dense.launch.checks.built import CHECKS

if __name__ == '__main__':
    CHECKS.append(my_extensions.check_epochs)
    main()
