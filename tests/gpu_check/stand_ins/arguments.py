"""The arguments of a stand-in for a tool of CUDA: options by name, then the program to run, if the tool takes one. What
the real tool would refuse ends a stand-in with code 64."""

import sys


def refuse(message):
    print(f"{sys.argv[0]}: {message}", file=sys.stderr)
    sys.exit(64)


def split(options):
    """options: name -> values it may have; None: any; False: it has none. Returns those given, and the program."""
    given, rest = {}, sys.argv[1:]
    while rest and rest[0].startswith("-"):
        name = rest.pop(0)
        if name not in options:
            refuse(f"unknown option {name}")
        if options[name] is False:
            given[name] = True
            continue
        if not rest:
            refuse(f"{name} needs a value")
        given[name] = rest.pop(0)
        if options[name] is not None and given[name] not in options[name]:
            refuse(f"{name} cannot be {given[name]}")
    return given, rest
