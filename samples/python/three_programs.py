"""The three programs with which graph modes are explained: as they run op by op, on two devices, and with side effects."""
from __future__ import annotations

from typing import Any

import graphsink as gs
import numpy as np


def first(x: Any, y: Any) -> Any:
    """Each op runs as it is called, so that print() shows numbers; as a graph it shows what is being built."""
    m = x * y
    n = x - y
    print(m)
    z = m + n
    return z


def second(x: Any, y: Any, z: Any) -> Any:
    """add on the CPU, sub on the device: one launch with the copies between them."""
    r = gs.add(x, y, on=gs.on_cpu)
    return gs.sub(r, z, on=gs.on_device)


x = gs.Variable("x", [1.0])


@gs.program
def third(y: Any, z: Any) -> Any:
    """The order of the assignments is that of the lines; the step stores the last one."""
    x.assign(y)
    x.assign(z)
    return x - y


def main() -> None:
    print("1  op by op, with a print between ops")
    with gs.eager():
        print(first(gs.tensor([1.0]), gs.tensor([2.0])))
    print(gs.program(first)([1.0], [2.0]))

    print("2  add on the CPU, sub on the device")
    target = gs.cuda(0) if gs.cuda.is_available() else gs.cpu()
    ones = np.ones((2, 2), np.float32)
    print(gs.program(target=target)(second)(ones, ones, ones))

    print("3  side effects in the order of the lines")
    print(third([0.2], [0.3]), x.read())


if __name__ == "__main__":
    main()
