package main

// System calls that package syscall has no name for. arm64 has neither chmod nor creat: no such call is -1.
const (
	sysRenameat2 = 276
	sysChmod     = ^uintptr(0)
	sysCreat     = ^uintptr(0)
	sysShmget    = 194
	sysSemget    = 190
	sysMsgget    = 186
)
