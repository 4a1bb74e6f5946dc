package main

// System calls that package syscall has no name for.
const (
	sysRenameat2 = 316
	sysChmod     = 90
	sysCreat     = 85
	sysShmget    = 29
	sysSemget    = 64
	sysMsgget    = 68
)
