# How a Python process that forks a child for each call confines that child: the interpreter of the scripts
# that sandbox.ForkScript writes. It decides nothing: a script is a list of system calls. The layout of a script
# is that of script.go. Standard library only; ctypes must be imported before the first fork.

import ctypes
import os
import struct

_HEADER = struct.Struct("=QQQ")
_OP = struct.Struct("=Q6QQQQ")
_LOOSE, _POKE = 1 << 16, 1 << 32
_SHM_INFO, _SEM_INFO, _MSG_INFO = 14, 19, 12
_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
_libc.syscall.argtypes = [ctypes.c_ulong] * 7


class Room:
    """A room that is made ready in the server. Each forked child calls enter(), and is in it for good."""

    def __init__(self, script):
        first, names_at, self._own_objects = struct.unpack_from("=QQQ", script)
        names = script[names_at:].decode().split("\n")
        image = script[24:names_at]
        self._counts = (ctypes.c_int * 32)()  # more than any of the structures has
        self._memory = ctypes.create_string_buffer(bytes(image), len(image))
        base = ctypes.addressof(self._memory)
        ops, relocs, count = _HEADER.unpack_from(self._memory)
        for i in range(count):
            at = struct.unpack_from("=Q", self._memory, relocs + 8 * i)[0]
            struct.pack_into("=Q", self._memory, at, struct.unpack_from("=Q", self._memory, at)[0] + base)
        self._registers = {}
        self._ops = []
        for i, name in enumerate(names):
            nr, a0, a1, a2, a3, a4, a5, mode, dst, _ = _OP.unpack_from(self._memory, ops + _OP.size * i)
            args = [a + base if mode >> n & 1 else a for n, a in enumerate((a0, a1, a2, a3, a4, a5))]
            registers = [n for n in range(6) if mode >> (8 + n) & 1]
            self._ops.append((nr, args, registers, mode & _LOOSE, dst, name))
        self._play(self._ops[:first])
        self._enter = self._ops[first:]

    def enter(self):
        """Confine this process. An error means that it is not confined: it must end."""
        self._play(self._enter)

    def left(self):
        """Count the objects of System V in the room. They outlive who has made them."""
        if not self._own_objects:
            return 0  # they are the host's, and nobody here can make one
        found = self._counts
        shared = -1 if _libc.shmctl(0, _SHM_INFO, found) < 0 else found[0]  # used_ids
        semaphores = -1 if _libc.semctl(0, 0, _SEM_INFO, found) < 0 else found[7]  # semusz
        messages = -1 if _libc.msgctl(0, _MSG_INFO, found) < 0 else found[0]  # msgpool
        if min(shared, semaphores, messages) < 0:
            raise OSError(ctypes.get_errno(), "the objects of System V cannot be counted")
        return shared + semaphores + messages

    def _play(self, ops):
        for nr, args, registers, loose, dst, name in ops:
            if registers:
                args = list(args)
                for n in registers:
                    args[n] = self._registers[args[n]]
            if nr == _POKE:
                ctypes.c_uint64.from_address(args[0]).value = args[1]
                continue
            result = _libc.syscall(nr, *args)
            if result < 0 and not loose:
                err = ctypes.get_errno()
                raise OSError(err, "the wall cannot be built: " + os.strerror(err), name)
            if dst:
                self._registers[dst] = result
