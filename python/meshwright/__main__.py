"""The command `meshwright`, as `python -m meshwright` and as a script."""

import signal
import sys

from . import _native


def main():
    # An interrupt ends the process, as it does that of the binary: the native code does not return to Python meanwhile.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(_native.command(["meshwright", *sys.argv[1:]], [sys.executable, "-m", "meshwright"]))


if __name__ == "__main__":
    main()
