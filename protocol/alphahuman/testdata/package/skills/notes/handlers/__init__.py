import importlib
import os

from ... import SHARED
from ..words import GREETING


def greet(args):
    return "%s %s" % (GREETING, args["name"])


def shared(args):
    return SHARED


def look(args):
    """Tells what there is: the names in folders, the beginning of files, or why neither can be read."""
    found = []
    for path in args["paths"]:
        try:
            if os.path.isdir(path):
                found.append(" ".join(sorted(n for n in os.listdir(path) if n != "__pycache__")))
            else:
                with open(path) as f:
                    found.append(f.read(20))
        except OSError as problem:
            found.append(problem.strerror)
    return "; ".join(found)


def use(args):
    """Says what a module says of itself."""
    try:
        return importlib.import_module(args["module"]).__doc__
    except ImportError as problem:
        return str(problem)


ALL = {"greet": greet, "shared": shared, "look": look, "use": use}
