"""Runs a module of a package, as python -m does, where the folders above the package may not be listed: -m looks for
a module in the list of what a folder has, and what else is there, the other skills among it, is no business of this
one's. So what is asked for by name is looked for by name, and only in those two folders."""

import importlib.machinery
import importlib.util
import os
import runpy
import sys


class Above:
    @staticmethod
    def find_spec(name, path=None, target=None):
        for folder in [ROOT] if path is None else path:
            if folder not in (ROOT, PARENT):
                continue
            found = os.path.join(folder, name.rpartition(".")[2])
            init = found + "/__init__.py"
            if os.path.isfile(init):
                return importlib.util.spec_from_file_location(name, init, submodule_search_locations=[found])
            if os.path.isfile(found + ".py"):
                return importlib.util.spec_from_file_location(name, found + ".py")
            if os.path.isdir(found):
                spec = importlib.machinery.ModuleSpec(name, None, is_package=True)
                spec.submodule_search_locations = [found]
                return spec


MODULE = sys.argv.pop(1)
ROOT = os.getcwd()
PARENT = os.path.join(ROOT, MODULE.partition(".")[0])
if sys.path[0] == "":  # it is not there where PYTHONSAFEPATH is set
    sys.path[0] = ROOT
sys.meta_path.append(Above)
runpy.run_module(MODULE, run_name="__main__", alter_sys=True)
