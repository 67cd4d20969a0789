"""SentencePiece at the end of the interpreter."""

import ctypes
import sys


def keep_swig_types() -> None:
    """Never frees the types of SWIG's modules that are loaded by now.

    SentencePiece dies by SIGSEGV where the interpreter frees this capsule after the types that its
    destructor takes.
    """
    for name in [name for name in sys.modules if name.startswith("swig_runtime_data")]:
        capsule = vars(sys.modules[name])["type_pointer_capsule"]
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(capsule))
