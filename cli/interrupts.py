"""How a command that holds processes is ended: in one way, whatever asked for it.

`sandbox`, `demo` and what `held.py` waits for call `end_like_ctrl_c` before they start anything.
"""

import signal


def end_like_ctrl_c() -> None:
    """SIGTERM and a terminal that is closed raise KeyboardInterrupt, as Ctrl-C does.

    A script's `&` hands down an ignored SIGINT, which would let none of the three end the process. An ignored SIGHUP
    stays ignored: that is what `nohup` asks for.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda *_: signal.raise_signal(signal.SIGINT))
