package main

import "golang.org/x/sys/unix"

// system reports what macOS cannot do. The findings about walls report what that means for sources.
func system() []finding {
	var u unix.Utsname
	err := unix.Uname(&u)
	return []finding{
		probe("kernel", err, stateFailed, unix.ByteSliceToString(u.Sysname[:])+" "+unix.ByteSliceToString(u.Release[:]),
			"macOS 11 or later; walls are built on Linux alone"),
		{
			"whole trees", stateMissing, "macOS does not give the processes of tools back to us",
			"a tool's processes end with it, but for those that leave its session",
		},
		{"memory files", stateMissing, "macOS has none", "secrets for tools are in temporary files, without a name"},
	}
}
